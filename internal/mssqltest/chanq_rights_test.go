package mssqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/mssqltest"
	"github.com/chanq/chanq/internal/mssqltest/engine"
)

// documentedRights reads the GRANT statements of docs/operations.md, by the
// comment above them; those above the first comment are for all.
func documentedRights(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "## Rights")
	require.True(t, ok)
	_, block, ok := strings.Cut(rest, "```sql\n")
	require.True(t, ok)
	block, _, _ = strings.Cut(block, "```")
	rights, role := map[string][]string{}, ""
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, "-- "); ok {
			role = comment
			continue
		}
		grant, _, _ := strings.Cut(line, ";")
		rights[role] = append(rights[role], grant)
	}
	return rights
}

// login makes a login that has the rights of a role, and a pool of it.
func login(t *testing.T, ctx context.Context, q *queue, role string) *sql.DB {
	t.Helper()
	rights := documentedRights(t)
	require.NotEmpty(t, rights[role])
	_, err := q.DB().ExecContext(ctx, "CREATE LOGIN app WITH PASSWORD = 'pw'; CREATE USER app FOR LOGIN app;")
	require.NoError(t, err)
	for _, grant := range append(rights[""], rights[role]...) {
		_, err := q.DB().ExecContext(ctx, grant)
		require.NoError(t, err, grant)
	}
	dsn, err := url.Parse(q.DSN())
	require.NoError(t, err)
	dsn.User = url.UserPassword("app", "pw")
	db, err := sql.Open("sqlserver", dsn.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// requireRefused: the error is one of missing rights, 229 for rows and 262 for
// the schema.
func requireRefused(t *testing.T, want int32, err error) {
	t.Helper()
	var e mssql.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Number)
}

func TestTheDocumentedRightsOfAProducerSuffice(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	q := newQueue(t, mssqltest.Options{})
	db := login(t, ctx, q, "a producer")
	orders, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	p, err := orders.Producer(chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(ctx, chanq.Message[string]{Body: "plain"})
	require.NoError(t, err)
	for _, duplicate := range []bool{false, true} {
		receipt, err := p.Send(ctx, chanq.Message[string]{Body: "keyed", DedupKey: "k"})
		require.NoError(t, err)
		require.Equal(t, duplicate, receipt.Duplicate)
	}
	q.Inject(mssqltest.Fault{Match: mssqltest.Is(mssqltest.Enqueue), At: mssqltest.Answered, Reset: true})
	_, err = p.Send(ctx, chanq.Message[string]{Body: "repeated"})
	require.NoError(t, err)
	require.NoError(t, p.Close(ctx))

	_, err = orders.TryLease(ctx, 1, time.Minute)
	requireRefused(t, 229, err)
	_, err = db.ExecContext(ctx, "DROP TABLE dbo.chanq_orders")
	requireRefused(t, 262, err)
}

func TestTheDocumentedRightsOfAConsumerSuffice(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	q := newQueue(t, mssqltest.Options{Clock: engine.RealClock{}})
	db := login(t, ctx, q, "a consumer")
	cfg := chanq.Config{Retain: time.Hour}
	orders, err := chanq.Open[string](ctx, db, "orders", cfg)
	require.NoError(t, err)
	owner, err := chanq.Open[string](ctx, q.DB(), "orders", cfg)
	require.NoError(t, err)
	p, err := owner.Producer(chanq.ProducerConfig{})
	require.NoError(t, err)
	l := newLife(t, ctx)
	l.send(p)
	require.NoError(t, p.Close(ctx))
	extended := q.Inject(mssqltest.Fault{Match: mssqltest.Is(mssqltest.Extend), At: mssqltest.Answered})
	l.extended = extended.Fired()
	c, err := orders.Consume(ctx, shortLease)
	require.NoError(t, err)
	l.live(c)
	l.requireEnded(orders)
	_, err = rowsOf(ctx, db, q.Trim(0, 10))
	require.NoError(t, err)

	require.Error(t, orders.Pause(ctx))
	requireRefused(t, 229, errors.Unwrap(orders.Pause(ctx)))
	_, err = db.ExecContext(ctx, "ALTER TABLE dbo.chanq_orders SET (LOCK_ESCALATION = TABLE)")
	requireRefused(t, 262, err)
}
