package embedded_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb/waking"
)

// own consumes an ordered queue: see package waking.
func own(ctx context.Context, path string, _ <-chan string) error {
	db, err := embedded.Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	return waking.Own(ctx, db, chanq.Config{})
}

// Package waking starts four processes that consume an ordered queue of a file.
func TestTheOwnerOfASlotGetsEachMessageImmediately(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(path)
	if err != nil {
		t.Fatal(fmt.Errorf("open: %w", err))
	}
	t.Cleanup(func() { _ = db.Close() })
	waking.Owners(t, db, chanq.Config{}, "own", path)
}
