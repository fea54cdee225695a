// Package ormtx has what SendTx, AckTx and CancelTx do in the transactions of database/sql, sqlx, GORM and ent.
package ormtx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

type customer struct {
	Name string `db:"name" gorm:"primaryKey"`
}

// register stores a customer, calls also, and sends a mail, in one transaction. An error of also rolls it back.
type register func(ctx context.Context, mails *chanq.Queue[string], name string, also func(chanq.Tx) error) error

func ofSQL(db *sql.DB, insert string) register {
	return func(ctx context.Context, mails *chanq.Queue[string], name string, also func(chanq.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, insert, name); err != nil {
			return err
		}
		if err := also(tx); err != nil {
			return err
		}
		if _, err := mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

func ofSqlx(db *sqlx.DB) register {
	return func(ctx context.Context, mails *chanq.Queue[string], name string, also func(chanq.Tx) error) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.NamedExecContext(ctx, "INSERT INTO customers (name) VALUES (:name)", customer{name}); err != nil {
			return err
		}
		if err := also(tx); err != nil {
			return err
		}
		if _, err := mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

func ofGORM(db *gorm.DB) register {
	return func(ctx context.Context, mails *chanq.Queue[string], name string, also func(chanq.Tx) error) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&customer{name}).Error; err != nil {
				return err
			}
			if err := also(tx.Statement.ConnPool); err != nil {
				return err
			}
			_, err := mails.SendTx(ctx, tx.Statement.ConnPool, chanq.Msg("Welcome, "+name))
			return err
		})
	}
}

// ofEnt has the driver of generated clients, whose Tx passes ExecContext and QueryContext on to that of the driver.
func ofEnt(driver *entsql.Driver, insert string) register {
	return func(ctx context.Context, mails *chanq.Queue[string], name string, also func(chanq.Tx) error) error {
		begun, err := driver.Tx(ctx)
		if err != nil {
			return err
		}
		defer begun.Rollback()
		tx := begun.(*entsql.Tx)
		if err := tx.Exec(ctx, insert, []any{name}, nil); err != nil {
			return err
		}
		if err := also(tx); err != nil {
			return err
		}
		if _, err := mails.SendTx(ctx, tx, chanq.Msg("Welcome, "+name)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// engine is a database and what the ORMs call it.
type engine struct {
	open      func(*testing.T) *sql.DB
	sqlx, ent string
	gorm      func(*sql.DB) gorm.Dialector
	insert    string // of a customer
}

var engines = map[string]engine{
	"SQLite": {
		open: func(t *testing.T) *sql.DB {
			db, err := embedded.Open(filepath.Join(t.TempDir(), "shop.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return db
		},
		sqlx: "sqlite", ent: dialect.SQLite, insert: "INSERT INTO customers (name) VALUES (?)",
		gorm: func(db *sql.DB) gorm.Dialector { return sqlite.New(sqlite.Config{Conn: db}) },
	},
	"PostgreSQL": {
		open: func(t *testing.T) *sql.DB { return pgtest.Open(t) },
		sqlx: "pgx", ent: dialect.Postgres, insert: "INSERT INTO customers (name) VALUES ($1)",
		gorm: func(db *sql.DB) gorm.Dialector { return postgres.New(postgres.Config{Conn: db}) },
	},
}

var errRefused = errors.New("refused")

func TestTransactionsOfORMsStoreAllOrNothing(t *testing.T) {
	for name, e := range engines {
		t.Run(name, func(t *testing.T) {
			db := e.open(t)
			orm, err := gorm.Open(e.gorm(db), &gorm.Config{})
			require.NoError(t, err)
			prepared, err := gorm.Open(e.gorm(db), &gorm.Config{PrepareStmt: true})
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), "CREATE TABLE customers (name VARCHAR(20) PRIMARY KEY)")
			require.NoError(t, err)
			require.NoError(t, chanq.Migrate(t.Context(), db, "mails", chanq.Config{}))
			mails, err := chanq.Open[string](t.Context(), db, "mails", chanq.Config{})
			require.NoError(t, err)
			for of, run := range map[string]register{
				"database sql": ofSQL(db, e.insert), "sqlx": ofSqlx(sqlx.NewDb(db, e.sqlx)), "GORM": ofGORM(orm),
				"GORM with prepared statements": ofGORM(prepared), "ent": ofEnt(entsql.OpenDB(e.ent, db), e.insert),
			} {
				t.Run(of, func(t *testing.T) { storesAllOrNothing(t, db, mails, run) })
			}
			t.Run("what is no transaction", func(t *testing.T) {
				l := &chanq.Lease[string]{}
				for of, tx := range map[string]chanq.Tx{
					"*sql.DB": db, "*sqlx.DB": sqlx.NewDb(db, e.sqlx), "*sql.DB of GORM": orm.Statement.ConnPool,
					"*gorm.PreparedStmtDB": prepared.Statement.ConnPool, "*sql.Driver": entsql.OpenDB(e.ent, db),
				} {
					_, err := mails.SendTx(t.Context(), tx, chanq.Msg("x"))
					refused(t, err, of)
					_, err = mails.CancelTx(t.Context(), tx, chanq.NewID())
					refused(t, err, of)
					refused(t, l.AckTx(t.Context(), tx), of)
					refused(t, chanq.AckTx(t.Context(), tx, l), of)
				}
				requireStats(t, db, chanqadmin.Stats{})
			})
		})
	}
}

func refused(t *testing.T, err error, of string) {
	t.Helper()
	require.ErrorContains(t, err, "which commits each statement immediately: give a transaction that was begun on it, or use chanq.InTx", of)
}

func requireStats(t *testing.T, db *sql.DB, want chanqadmin.Stats) {
	t.Helper()
	admin, err := chanqadmin.Open(t.Context(), db, "mails", chanq.Config{})
	require.NoError(t, err)
	got, err := admin.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, chanqadmin.Stats{Ready: got.Ready, Scheduled: got.Scheduled, Leased: got.Leased, Dead: got.Dead, Done: got.Done})
}

// storesAllOrNothing has a transaction that fails and one that is committed. Each acks a message, cancels one and sends one.
func storesAllOrNothing(t *testing.T, db *sql.DB, mails *chanq.Queue[string], run register) {
	ctx := t.Context()
	sent, err := mails.Send(ctx, chanq.Msg("to be acked"), chanq.Message[string]{Body: "to be cancelled", Delay: time.Hour})
	require.NoError(t, err)
	consumer, err := mails.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	lease := <-consumer.C()
	consumer.Stop() // so that it takes none of what is sent
	for _, end := range []error{errRefused, nil} {
		require.Equal(t, end, run(ctx, mails, "Ada", func(tx chanq.Tx) error {
			if err := lease.AckTx(ctx, tx); err != nil {
				return err
			}
			found, err := mails.CancelTx(ctx, tx, sent[1].ID)
			require.Len(t, found, 1)
			return cmp.Or(err, end)
		}))
		if end != nil {
			requireStats(t, db, chanqadmin.Stats{Scheduled: 1, Leased: 1})
		}
	}
	requireStats(t, db, chanqadmin.Stats{Ready: 1})
	var customers int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM customers WHERE name = 'Ada'").Scan(&customers))
	require.Equal(t, 1, customers)
	require.NoError(t, consumer.Shutdown(ctx))
	for _, text := range []string{"DELETE FROM customers", "DELETE FROM chanq_mails"} {
		_, err = db.ExecContext(ctx, text)
		require.NoError(t, err)
	}
}
