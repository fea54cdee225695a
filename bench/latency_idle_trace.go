package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// traced counts the statements of a *sql.DB whose connections must stay pgx's own: what
// measure.Counter wraps cannot listen.
type traced struct{ n atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (t *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.n.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
