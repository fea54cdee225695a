package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

// TestMain is also the program that measurements start as their other processes.
func TestMain(m *testing.M) {
	child.Main(parts)
	testdb.Together(4)
	goleak.VerifyTestMain(m)
}
