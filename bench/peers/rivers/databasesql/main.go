// Command databasesql measures River v0.25.0 through database/sql, the layer that chanq uses. It is
// the newest version whose database/sql driver the module proxy serves.
package main

import (
	"context"
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"

	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/bench/peers/rivers"
)

func main() {
	peer.Main(map[string]peer.System{"postgres/river-sql-tuned": {Module: "github.com/riverqueue/river", Open: open}})
}

func open(_ context.Context, job peer.Job) (peer.Queue, error) {
	db, err := sql.Open("pgx", job.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(peer.Connections)
	db.SetMaxIdleConns(peer.Connections)
	return &rivers.Queue[*sql.Tx]{
		Driver:   riverdatabasesql.New(db),
		Settings: rivers.Tuned,
		LeftJobs: func(ctx context.Context) (peer.Left, error) { return peer.LeftPostgres(ctx, db, "river_job") },
		CloseAll: db.Close,
	}, nil
}
