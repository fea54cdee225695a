package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/bench/peers/rivers"
)

type riverInsert = func(context.Context, *river.Client[pgx.Tx], []river.InsertManyParams) error

// insertByCopy is River's fastest insert: COPY, without unique jobs.
func insertByCopy(ctx context.Context, client *river.Client[pgx.Tx], jobs []river.InsertManyParams) error {
	_, err := client.InsertManyFast(ctx, jobs)
	return err
}

func openRiver(settings rivers.Settings, insertAll riverInsert) func(context.Context, peer.Job) (peer.Queue, error) {
	return func(ctx context.Context, job peer.Job) (peer.Queue, error) {
		config, err := pgxpool.ParseConfig(job.DSN)
		if err != nil {
			return nil, err
		}
		config.MaxConns = peer.Connections
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		return &rivers.Queue[pgx.Tx]{
			Driver: riverpgxv5.New(pool), Settings: settings, InsertAll: insertAll,
			LeftJobs: func(ctx context.Context) (l peer.Left, err error) {
				db, err := openPostgres(job.DSN)
				if err != nil {
					return l, err
				}
				l, err = peer.LeftPostgres(ctx, db, "river_job")
				return l, errors.Join(err, db.Close())
			},
			CloseAll: func() error { pool.Close(); return nil },
		}, nil
	}
}
