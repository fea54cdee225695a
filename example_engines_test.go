package chanq_test

import (
	"context"
	"database/sql"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"  // the driver "pgx"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/pgnotify"
)

// On SQL Server, with a notifier; the DSN is sqlserver://user:password@host?database=shop&connection+timeout=45
func ExampleOpen_sqlServer() {
	ctx := context.Background()
	db, err := sql.Open("sqlserver", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	notifier := mssqlnotify.New(db, mssqlnotify.Config{}) // wakes idle consumers of this process
	defer notifier.Close()                                // after the consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
	check(err)
	_ = orders
}

// On PostgreSQL, with a notifier; the DSN is postgres://user:password@host/shop
func ExampleOpen_postgreSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{}) // wakes idle consumers of other processes
	defer notifier.Close()                          // after producers and consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
	check(err)
	_ = orders
}
