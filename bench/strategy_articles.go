package main

import (
	"context"
	"database/sql"
	"strings"

	"github.com/google/uuid"
)

// The most popular dequeue methods, each as in its article: its table, its hints, one insert for
// each message, and only the indexes of the article. Only names and the column of the body are the
// bench's. Texts that the articles keep as procedures run as parameterised batches if the database
// plans both alike. On PostgreSQL they are the nearest equivalent: SKIP LOCKED for READPAST,
// RETURNING for OUTPUT, an advisory lock for sp_getapplock.

// articleMethod is a method on one engine. {} in a text is the prefix of each name of the
// measurement.
type articleMethod struct {
	make, drop []string
	enqueue    string // stores its one parameter
	// take takes up to n messages, performs the article's steps before and after the work on them,
	// and returns their number.
	take func(s *articleSession, n int) (int, error)
}

// article is a method with its name.
type article struct {
	name    string
	batches bool   // a take can get more than one message
	without string // what the method leaves out
	on      map[string]articleMethod
}

var articles = []article{updlockReadpast, cursorApplock, viewOutput, cteReadpast, guidMarker}

func articleStrategies() []strategyKind {
	kinds := make([]strategyKind, len(articles))
	for i, a := range articles {
		batch := one
		if a.batches {
			batch = func(o options) int { return o.articleBatch }
		}
		kinds[i] = strategyKind{a.name, servers, true, batch, func(ctx context.Context, o options, s *store) (strategy, error) {
			return newArticleLoop(ctx, s, a.on[o.engine], batch(o))
		}}
	}
	return kinds
}

// articleLoop runs a method on one connection.
type articleLoop struct {
	store  *store
	method articleMethod
	batch  int
	prefix string
}

// newArticleLoop creates the method's table. On PostgreSQL it is removed with the measurement's
// schema, on SQL Server by the store.
func newArticleLoop(ctx context.Context, s *store, m articleMethod, batch int) (strategy, error) {
	l := articleLoop{s, m, batch, s.place.Queue}
	if s.place.Schema != "" {
		l.prefix = s.place.Schema + "." + s.place.Queue
	}
	remove := s.remove
	s.remove = func() error {
		for _, text := range m.drop {
			if _, err := s.db.ExecContext(context.WithoutCancel(ctx), l.named(text)); err != nil {
				_ = remove()
				return err
			}
		}
		return remove()
	}
	for _, text := range m.make {
		if _, err := s.db.ExecContext(ctx, l.named(text)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l articleLoop) named(text string) string { return strings.ReplaceAll(text, "{}", l.prefix) }

func (l articleLoop) enqueue(ctx context.Context, bodies [][]byte) error {
	return l.session(ctx, func(s *articleSession) error { return inBatches(bodies, 1, s.enqueue, nil) })
}

func (l articleLoop) drain(ctx context.Context, n int) error {
	return l.session(ctx, func(s *articleSession) error { return takeAll(n, l.batch, s.take) })
}

func (l articleLoop) pipeline(ctx context.Context, bodies [][]byte) error {
	return l.session(ctx, func(s *articleSession) error { return inBatches(bodies, 1, s.enqueue, s.take) })
}

func (l articleLoop) session(ctx context.Context, f func(*articleSession) error) error {
	conn, err := l.store.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(&articleSession{ctx: context.WithoutCancel(ctx), conn: conn, on: conn, loop: l, texts: map[string]string{}, worker: uuid.New()})
}

// articleSession is a worker's connection.
type articleSession struct {
	ctx  context.Context
	conn *sql.Conn
	on   interface { // conn or the open transaction
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}
	loop   articleLoop
	texts  map[string]string // with names filled in
	worker uuid.UUID         // the worker of the article
}

func (s *articleSession) enqueue(one [][]byte) error { return s.exec(s.loop.method.enqueue, one[0]) }
func (s *articleSession) take(n int) (int, error)    { return s.loop.method.take(s, n) }

func (s *articleSession) text(text string) string {
	named, ok := s.texts[text]
	if !ok {
		named = s.loop.named(text)
		s.texts[text] = named
	}
	return named
}

func (s *articleSession) exec(text string, args ...any) error {
	_, err := s.on.ExecContext(s.ctx, s.text(text), args...)
	return err
}

// query returns the ids, which are the first column, and copies the bodies, which are the second,
// as a handler would need them.
func (s *articleSession) query(text string, args ...any) (ids []any, err error) {
	rows, err := s.on.QueryContext(s.ctx, s.text(text), args...)
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func(rows *sql.Rows) error {
		var id any
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return err
		}
		s.loop.store.received.add(body)
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// inTx runs f in a transaction, which ends with f.
func (s *articleSession) inTx(f func() error) error {
	tx, err := s.conn.BeginTx(s.ctx, nil)
	if err != nil {
		return err
	}
	s.on = tx
	defer func() { s.on = s.conn }()
	if err := f(); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
