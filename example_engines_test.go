package chanq_test

import (
	"context"
	"database/sql"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"  // the driver "pgx"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/pgbell"
)

// On SQL Server, with a bell; the DSN is sqlserver://user:password@host?database=shop&connection+timeout=45
func ExampleOpen_sqlServer() {
	ctx := context.Background()
	db, err := sql.Open("sqlserver", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	bell := mssqlnotify.New(db, mssqlnotify.Config{}) // wakes idle consumers of this process
	defer bell.Close()                                // after the consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: bell})
	check(err)
	_ = orders
}

// On PostgreSQL, with a bell; the DSN is postgres://user:password@host/shop
func ExampleOpen_postgreSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	bell := pgbell.New(db, pgbell.Config{}) // wakes idle consumers of other processes
	defer bell.Close()                      // after producers and consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: bell})
	check(err)
	_ = orders
}
