package sqlbatch_test

import (
	"testing"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

func TestStatements(t *testing.T) {
	for _, e := range testdb.Engines() {
		t.Run(e.Name, func(t *testing.T) { suite.Run(t, e) })
	}
}
