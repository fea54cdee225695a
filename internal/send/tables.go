package send

import (
	"context"
	"database/sql"

	"github.com/chanq/chanq/internal/table"
)

// tables is the Table of a Sender: a queue on sessions.
type tables struct {
	table.Table
	Insert
}

// TableOf returns the statements of a Sender.
func TableOf(t table.Table) Table { return tables{t, t.Insert()} }

func (t tables) InOwnTx(ctx context.Context, f func(Tx) error) error {
	return t.Table.InOwnTx(ctx, func(b table.Begun) error { return f(b) })
}

func (t tables) Spare() bool { return t.Part.Spare() }

// InsertsOf stores rows by the statements of a queue.
func InsertsOf(i table.Insert) Inserts {
	return Inserts{Insert: i, Classify: i.Classify, FindIDs: i.Dialect.Traits().FindIDs}
}

// DirectOn returns a Direct without limits.
func DirectOn(t table.Table) Direct {
	return Direct{
		Inserts: InsertsOf(t.Insert()),
		InTx: func(ctx context.Context, f func(Inserts) error) error {
			return t.Part.InTx(ctx, func(tx *sql.Tx) error { return f(InsertsOf(t.InTx(tx))) })
		},
	}
}
