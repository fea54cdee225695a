package main

import (
	"context"
	"database/sql"
	"os"
	"strings"

	"github.com/chanq/chanq"
)

// counts are the words of one file.
type counts struct {
	File  string
	Words map[string]int
}

func open[T any](ctx context.Context, db *sql.DB, name string) (*chanq.Queue[T], error) {
	if err := chanq.Migrate(ctx, db, name, chanq.Config{}); err != nil {
		return nil, err
	}
	return chanq.Open[T](ctx, db, name, chanq.Config{})
}

// count is the first stage. It runs in no transaction; Pipe then replaces its
// input by its output in one.
func count(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[counts], error) {
	text, err := os.ReadFile(l.Body)
	if err != nil {
		return nil, chanq.DeadLetter(err)
	}
	result := counts{File: l.Body, Words: map[string]int{}}
	for word := range strings.FieldsSeq(string(text)) {
		result.Words[word]++
	}
	return []chanq.Message[counts]{chanq.Msg(result)}, nil
}

// add is the second stage: it adds a batch to the table and acks it, together.
func add(db *sql.DB) func(context.Context, []*chanq.Lease[counts]) error {
	return func(ctx context.Context, batch []*chanq.Lease[counts]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			for _, l := range batch {
				for word, n := range l.Body.Words {
					_, err := tx.ExecContext(ctx, "INSERT INTO words (word, n) VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET n = n + excluded.n", word, n)
					if err != nil {
						return err
					}
				}
			}
			return chanq.AckTx(ctx, tx, batch...)
		})
	}
}

// empty reports whether neither queue has a message that waits or is being processed. It asks them in the
// order in which a message passes through them, so that it cannot miss one that moves meanwhile.
func empty[A, B any](ctx context.Context, first *chanq.Queue[A], second *chanq.Queue[B]) bool {
	if empty, err := first.Empty(ctx); !empty || err != nil {
		return false
	}
	empty, err := second.Empty(ctx)
	return empty && err == nil
}
