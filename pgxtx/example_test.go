package pgxtx_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgxtx"
)

// Queries has the form of the code that sqlc generates with sql_package: pgx/v5.
type Queries struct{ db DBTX }

type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

func New(db DBTX) *Queries { return &Queries{db: db} }

func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }

func (q *Queries) CreateCustomer(ctx context.Context, name string) error {
	_, err := q.db.Exec(ctx, "INSERT INTO customers (name) VALUES ($1)", name)
	return err
}

// shop has a pool of the application, and a queue on the same database.
type shop struct {
	pool    *pgxpool.Pool
	queries *Queries
	mails   *chanq.Queue[string]
}

// register stores a customer and sends a mail, in one transaction of InTx.
func (s *shop) register(ctx context.Context, name string) error {
	return pgxtx.InTx(ctx, s.pool, func(ctx context.Context, tx *pgxtx.Tx) error {
		if err := s.queries.WithTx(tx).CreateCustomer(ctx, name); err != nil {
			return err
		}
		_, err := s.mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name))
		return err // nil: commit; otherwise no mail is sent
	})
}

// registerIn does the same in a transaction that it begins itself.
func (s *shop) registerIn(ctx context.Context, name string, options pgx.TxOptions) error {
	tx, err := s.pool.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if err := s.queries.WithTx(tx).CreateCustomer(ctx, name); err != nil {
		return err
	}
	if _, err := s.mails.SendTx(ctx, pgxtx.Wrap(tx), chanq.Msg("Welcome, "+name)); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	s.mails.Wake()
	return nil
}

// A customer and a mail are stored in one transaction of a pgxpool.Pool. TestACommitStoresBothAndARollbackNeither runs both ways.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://user:password@host/shop")
	check(err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool) // the queue uses connections of the pool
	defer db.Close()
	mails, err := chanq.Open[string](ctx, db, "mails", chanq.Config{})
	check(err)
	s := &shop{pool, New(pool), mails}
	check(s.register(ctx, "Ada"))
	check(s.registerIn(ctx, "Grace", pgx.TxOptions{IsoLevel: pgx.Serializable}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
