// Command riversqlite measures River v0.31.0 on SQLite, the newest version
// whose SQLite driver the module proxy serves.
package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/riverqueue/river/riverdriver/riversqlite"
	"modernc.org/sqlite"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/bench/peers/rivers"
)

func main() {
	peer.Main(map[string]peer.System{"sqlite/river-sqlite-tuned": {Module: "github.com/riverqueue/river", Open: open}})
}

func open(ctx context.Context, job peer.Job) (peer.Queue, error) {
	counter := &measure.Counter{}
	db := sql.OpenDB(counter.DSN(&sqlite.Driver{}, peer.SQLiteDSN(job.Dir)))
	db.SetMaxOpenConns(1) // required by River's documentation
	if err := peer.CheckSQLite(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &rivers.Queue[*sql.Tx]{
		Driver:   riversqlite.New(db),
		Settings: rivers.Tuned,
		LeftJobs: func(ctx context.Context) (peer.Left, error) { return peer.LeftSQLite(ctx, db, "river_job") },
		Counter:  counter,
		CloseAll: db.Close,
	}, nil
}
