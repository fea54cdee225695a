package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net/url"
	"os"
	"regexp"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtopic"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The parts of docs/rights/sqlserver.sql, of which each is run after a migration.
const (
	rightsBefore = iota // any
	rightsAfter
	rightsOrdered
	rightsSchedules
	rightsBatches
	rightsResults
	rightsOnDuplicate
	rightsTopics
	rightsDrop

	rightsParts
)

// rightsScript returns a part of docs/rights/sqlserver.sql.
func rightsScript(t *testing.T, part int) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/rights/sqlserver.sql")
	require.NoError(t, err)
	parts := regexp.MustCompile("(?m)^-- Part [2-9],").Split(string(text), -1)
	require.Len(t, parts, rightsParts)
	return "-- Part" + parts[part]
}

// member creates a login with an existing role, and returns a connection pool for it.
func member(t *testing.T, ctx context.Context, s *mssqltest.Server, role string) *sql.DB {
	t.Helper()
	_, err := s.DB().ExecContext(ctx, "CREATE LOGIN "+role+"_app WITH PASSWORD = 'pw'; CREATE USER "+role+"_app FOR LOGIN "+role+"_app; ALTER ROLE "+role+" ADD MEMBER "+role+"_app;")
	require.NoError(t, err)
	dsn, err := url.Parse(s.DSN())
	require.NoError(t, err)
	dsn.User = url.UserPassword(role+"_app", "pw")
	return connect(t, dsn.String())
}

// login returns a connection pool for a member of a role, with the permissions that the script grants when the queue
// exists.
func login(t *testing.T, ctx context.Context, q *queue, role string) *sql.DB {
	t.Helper()
	for part := rightsBefore; part <= rightsAfter; part++ {
		_, err := q.DB().ExecContext(ctx, rightsScript(t, part))
		require.NoError(t, err)
	}
	return member(t, ctx, q.Server, role)
}

// requireRefused requires an error of a missing permission: 229 for rows, 230 for columns and 262 for the schema.
func requireRefused(t *testing.T, want int32, err error) {
	t.Helper()
	var e mssql.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Number)
}

func TestTheDocumentedPermissionsOfAProducerSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	db := login(t, ctx, q, "chanq_producer")
	orders, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	p, err := orders.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(ctx, chanq.Message[string]{Body: "plain"})
	require.NoError(t, err)
	for _, duplicate := range []bool{false, true} {
		receipt, err := p.Send(ctx, chanq.Message[string]{Body: "keyed", DedupKey: "k"})
		require.NoError(t, err)
		require.Equal(t, duplicate, receipt.Duplicate)
	}
	q.Inject(mssqltest.Fault{Match: sqlkind.Is(sqlkind.Enqueue), At: mssqltest.Answered, Reset: true})
	_, err = p.Send(ctx, chanq.Message[string]{Body: "repeated"})
	require.NoError(t, err)
	require.NoError(t, p.Close(ctx))
	_, err = suite.Rows(ctx, db, q.Sample(sqlbatch.Sample{Sent: 1}))
	require.NoError(t, err)
	empty, err := orders.Empty(ctx)
	require.NoError(t, err)
	require.False(t, empty)

	c, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	for range c.C() { // the channel is closed
	}
	requireRefused(t, 230, c.Err())
	require.ErrorContains(t, c.Err(), "permission was denied")
	require.Equal(t, c.Err(), c.Shutdown(ctx))
	for _, column := range []string{"body", "headers", "last_error"} {
		_, err = db.ExecContext(ctx, "SELECT "+column+" FROM dbo.chanq_orders")
		requireRefused(t, 230, err)
	}
	_, err = db.ExecContext(ctx, "SELECT body FROM dbo.chanq_orders__dead")
	requireRefused(t, 229, err)
	_, err = db.ExecContext(ctx, "DELETE dbo.chanq_orders")
	requireRefused(t, 229, err)
	requireRefused(t, 262, chanq.Migrate(ctx, db, "invoices", chanq.Config{}))
	_, err = db.ExecContext(ctx, "DROP TABLE dbo.chanq_orders")
	requireRefused(t, 262, err)
}

func TestTheDocumentedPermissionsOfAConsumerSuffice(t *testing.T) {
	t.Parallel()
	inBubble(t, consumerPermissions) // because its leases are short
}

func consumerPermissions(t *testing.T) {
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{})
	db := login(t, ctx, q, "chanq_consumer")
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}, StatementTimeout: 5 * time.Second}
	require.NoError(t, chanq.Migrate(ctx, q.DB(), "orders", cfg))
	orders, err := chanq.Open[string](ctx, db, "orders", cfg)
	require.NoError(t, err)
	owner, err := chanq.Open[string](ctx, q.DB(), "orders", cfg)
	require.NoError(t, err)
	p, err := owner.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	l := newLife(t, ctx)
	l.send(p)
	require.NoError(t, p.Close(ctx))
	extended := q.Inject(mssqltest.Fault{Match: sqlkind.Is(sqlkind.Extend), At: mssqltest.Answered})
	l.extended = extended.Fired()
	c, err := orders.Consume(ctx, shortLease)
	require.NoError(t, err)
	l.live(c)
	l.requireEnded(orders)
	for _, st := range []sqlbatch.Statement{q.Trim(sqlbatch.Done, 0, 10, 0), q.Trim(sqlbatch.Dead, time.Hour, 10, 0), q.Sample(sqlbatch.Sample{Depth: &sqlbatch.Depth{}}), q.Thin(), q.Empty()} {
		_, err = suite.Rows(ctx, db, st)
		require.NoError(t, err)
	}
	rows, err := suite.Rows(ctx, db, sqlserver.Dialect.Watch([]sqlbatch.Watched{{Names: suite.Orders, Look: true}}, time.Millisecond, 0))
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, []any{int64(0), int64(1), int64(0)}, rows[0][:3])

	p, err = orders.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(ctx, chanq.Message[string]{})
	requireRefused(t, 229, err)
	require.NoError(t, p.Close(ctx))
	requireRefused(t, 229, errors.Unwrap(testdb.Pause(ctx, orders)))
	_, err = db.ExecContext(ctx, "ALTER TABLE dbo.chanq_orders SET (LOCK_ESCALATION = TABLE)")
	requireRefused(t, 262, err)
}

func TestTheDocumentedPermissionsOfAMigratorSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	s := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	before, after := rightsScript(t, rightsBefore), rightsScript(t, rightsAfter)
	_, err := s.DB().ExecContext(ctx, before)
	require.NoError(t, err)
	db := member(t, ctx, s, "chanq_migrator")
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}), "again")
	_, err = s.DB().ExecContext(ctx, after)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "DELETE dbo.chanq_orders")
	requireRefused(t, 229, err)
}

func TestTheDocumentedPermissionsOfAnOperatorSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	q.exec(q.Enqueue(makeRows(3, 0)))
	db := login(t, ctx, q, "chanq_operator")
	orders, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	require.NoError(t, testdb.Pause(ctx, orders))
	logged := chanqadmin.Change{Unlogged: func(err error) { require.NoError(t, err) }}
	require.NoError(t, testdb.Admin(orders).Resume(ctx, logged))
	require.NoError(t, testdb.Admin(orders).Configure(ctx, chanq.Spec{MaxAttempts: 5}, logged))
	ready, err := testdb.Peek(ctx, orders, chanqadmin.StateReady, 10)
	require.NoError(t, err)
	require.Len(t, ready, 3)
	_, err = testdb.Admin(orders).Get(ctx, ready[0].ID)
	require.NoError(t, err)
	_, err = orders.Cancel(ctx, ready[0].ID)
	require.NoError(t, err)
	leases := testdb.Lease(t, orders, 1, time.Minute)
	requireRefused(t, 229, leases[0].Nack(chanq.DeadLetter(nil)))
	_, err = testdb.Redrive(ctx, orders, 0)
	require.NoError(t, err)
	_, err = testdb.PurgeIDs(ctx, orders, ready[0].ID)
	require.NoError(t, err)
	_, err = testdb.Admin(orders).History(ctx, time.Time{}, chanqadmin.StepMinute)
	require.NoError(t, err)
	queues, err := chanqadmin.Queues(ctx, db, chanq.Config{})
	require.NoError(t, err)
	require.Equal(t, []string{"orders"}, queues)
	for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone} {
		_, err = testdb.Purge(ctx, orders, state)
		require.NoError(t, err, state)
	}
	stats, err := testdb.Admin(orders).Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready+stats.Leased)
	empty, err := orders.Empty(ctx)
	require.NoError(t, err)
	require.True(t, empty)
	_, err = db.ExecContext(ctx, "DROP TABLE dbo.chanq_orders")
	requireRefused(t, 262, err)
}

func TestTheDocumentedPermissionToDropAQueueSuffices(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	s := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	_, err := s.DB().ExecContext(ctx, rightsScript(t, rightsBefore))
	require.NoError(t, err)
	db := member(t, ctx, s, "chanq_migrator")
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	require.NoError(t, chanqjobs.Migrate(ctx, db, chanq.Config{}))
	_, err = s.DB().ExecContext(ctx, "INSERT INTO dbo.chanq__results (queue, id, result, until) VALUES (N'orders', 0x01, 0x01, 0)")
	require.NoError(t, err)
	logged := chanqadmin.Change{Unlogged: func(err error) { require.NoError(t, err) }}
	requireRefused(t, 229, chanqadmin.Drop(ctx, db, "orders", chanq.Config{}, logged))
	_, err = s.DB().ExecContext(ctx, rightsScript(t, rightsDrop))
	require.NoError(t, err)
	require.NoError(t, chanqadmin.Drop(ctx, db, "orders", chanq.Config{}, logged))
	rows, err := suite.Rows(ctx, db, sqlbatch.Statement{Text: "SELECT queue FROM dbo.chanq__results"})
	require.NoError(t, err)
	require.Empty(t, rows)
}

// The permissions that each statement of an ordered queue needs, role by role.
func TestTheDocumentedPermissionsSufficeForAnOrderedQueue(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	s := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	before, after, ordered := rightsScript(t, rightsBefore), rightsScript(t, rightsAfter), rightsScript(t, rightsOrdered)
	_, err := s.DB().ExecContext(ctx, before)
	require.NoError(t, err)
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}
	require.NoError(t, chanq.Migrate(ctx, member(t, ctx, s, "chanq_migrator"), "orders", cfg))
	_, err = s.DB().ExecContext(ctx, after+ordered)
	require.NoError(t, err)
	q := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders", Slots: 4})
	runs := func(db *sql.DB, statements ...sqlbatch.Statement) (last [][]any) {
		for _, st := range statements {
			last, err = suite.Rows(ctx, db, st)
			require.NoError(t, err, st.Text)
		}
		return last
	}
	refuses := func(db *sql.DB, texts ...string) {
		for _, text := range texts {
			_, err := db.ExecContext(ctx, text)
			requireRefused(t, 229, err)
		}
	}
	row := func(n byte) []sqlbatch.Row {
		return []sqlbatch.Row{{ID: [16]byte{n}, OrderKey: "a", Slot: 1, Body: []byte("b")}}
	}
	me := [16]byte{1}
	items := []sqlbatch.Item{{Fence: 1}}

	producer := member(t, ctx, s, "chanq_producer")
	runs(producer, q.Enqueue(row(1)), q.EnqueueNew(row(2)))
	refuses(producer, "SELECT slot FROM dbo.chanq__slots", "UPDATE dbo.chanq_orders SET slot = 1")

	consumer := member(t, ctx, s, "chanq_consumer")
	runs(consumer, q.Join(sqlbatch.Consumer{ID: me, For: time.Hour}), q.Slots())
	taken := runs(consumer, q.TakeSlots(me, 1, []int{1}))
	require.Len(t, taken, 1)
	own := []sqlbatch.OwnedSlot{{Slot: 1, Fence: taken[0][1].(int64)}}
	read := runs(consumer, q.Read(sqlbatch.ReadParams{Consumer: me, Slots: own, Upto: math.MaxInt64, Rows: 10, Behind: 10, Keys: []string{"b"}, Inline: 10}))
	require.Len(t, read, 2+1)
	require.Equal(t, []any{int64(1), int64(3<<sqlbatch.SeqBits - 1)}, read[2][1:3], "the slot was walked, and the first number belongs to no message")
	runs(consumer, q.Refill(sqlbatch.ReadParams{Consumer: me, Slots: own, Upto: math.MaxInt64, Rows: 10, Keys: []string{"a"}}), q.Fetch(me, own, [][16]byte{{1}}), q.LookOrdered(me, own, [][16]byte{{1}}),
		q.HeldKeys([]int{1}, []string{"a"}), q.MarkOrdered(me, []sqlbatch.MarkItem{{Item: items[0]}}), q.ReleaseOrdered(me, suite.Releases(items), true), q.Release(suite.Releases(items)))
	runs(consumer, q.Extend(suite.Consumer, items, time.Minute), q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[0]}}), q.Archive(items),
		q.SlotStats(10), q.GiveSlots(me, []sqlbatch.OwnedSlot{{Slot: 1}}))
	refuses(consumer, "DECLARE @n bigint = NEXT VALUE FOR dbo.chanq_orders__seq", "DELETE dbo.chanq__slots", "INSERT dbo.chanq__slots (queue, slot, fence) VALUES ('orders', 9, 0)")

	operator := member(t, ctx, s, "chanq_operator")
	runs(operator, q.Stats(10), q.SlotStats(10), q.Slots(), q.Redrive(10, nil, sqlbatch.Window{}), q.Reach(0, 10), q.Peek(sqlbatch.Dead, 10, nil), q.Peek(sqlbatch.Done, 10, nil))
	for _, state := range []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done} {
		runs(operator, q.Browse(state, 10, nil, sqlbatch.Filter{}), q.Purge(state, 10, sqlbatch.Window{}))
	}
	refuses(operator, "UPDATE dbo.chanq__slots SET consumer = NULL", "DECLARE @n bigint = NEXT VALUE FOR dbo.chanq_orders__seq")
}

func TestTheDocumentedPermissionsForOnDuplicateSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	producer := login(t, ctx, q, "chanq_producer")
	orders, err := chanq.Open[string](ctx, producer, "orders", chanq.Config{})
	require.NoError(t, err)
	requireRefused(t, 229, suite.SendsOver(ctx, orders))
	_, err = q.DB().ExecContext(ctx, rightsScript(t, rightsOnDuplicate))
	require.NoError(t, err)
	require.NoError(t, suite.SendsOver(ctx, orders))
	for _, text := range []string{"SELECT body FROM dbo.chanq_orders", "SELECT headers FROM dbo.chanq_orders"} {
		_, err = producer.ExecContext(ctx, text)
		requireRefused(t, 230, err)
	}
}

func TestTheDocumentedPermissionsForSchedulesSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	producer := login(t, ctx, q, "chanq_producer")
	migrator, operator := member(t, ctx, q.Server, "chanq_migrator"), member(t, ctx, q.Server, "chanq_operator")
	require.NoError(t, chanqcron.Migrate(ctx, migrator, chanq.Config{}))
	_, err := q.DB().ExecContext(ctx, rightsScript(t, rightsSchedules))
	require.NoError(t, err)
	suite.RunsSchedules(t, ctx, producer, operator)
	require.NoError(t, chanqcron.Migrate(ctx, producer, chanq.Config{}), "there is nothing to do")
	_, err = producer.ExecContext(ctx, "DELETE dbo.chanq__schedules")
	requireRefused(t, 229, err)
	_, err = operator.ExecContext(ctx, "UPDATE dbo.chanq__tables SET version = 9")
	requireRefused(t, 229, err)
}

// A consumer also notices deaths, and stores results and progress.
func TestTheDocumentedPermissionsForReactionsToJobsSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	login(t, ctx, q, "chanq_producer") // runs the first parts
	migrator := member(t, ctx, q.Server, "chanq_migrator")
	require.NoError(t, chanqjobs.Migrate(ctx, migrator, chanq.Config{}))
	_, err := q.DB().ExecContext(ctx, rightsScript(t, rightsResults))
	require.NoError(t, err)
	consumer := member(t, ctx, q.Server, "chanq_consumer")
	for _, text := range []string{
		"UPDATE dbo.chanq_orders__dead WITH (READPAST, ROWLOCK) SET noticed_at = SYSUTCDATETIME() OUTPUT inserted.fence WHERE id = 0x01 AND noticed_at = '19700101'",
		"INSERT INTO dbo.chanq__results (queue, id, result, until) VALUES (N'orders', 0x01, 0x01, 0)",
		"INSERT INTO dbo.chanq__progress (queue, id, fence, at, done, note) VALUES (N'orders', 0x01, 1, 1, 1, N'')",
		"DELETE TOP (100) FROM dbo.chanq__progress WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE at < 7",
		"DELETE TOP (1000) FROM dbo.chanq__results WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE until < 7",
	} {
		_, err := consumer.ExecContext(ctx, text)
		require.NoError(t, err, text)
	}
	_, err = member(t, ctx, q.Server, "chanq_operator").ExecContext(ctx, "DELETE dbo.chanq__results")
	requireRefused(t, 229, err)
}

func TestTheDocumentedPermissionsForBatchesSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	producer := login(t, ctx, q, "chanq_producer")
	migrator, operator := member(t, ctx, q.Server, "chanq_migrator"), member(t, ctx, q.Server, "chanq_operator")
	require.NoError(t, chanqjobs.Migrate(ctx, migrator, chanq.Config{}))
	_, err := q.DB().ExecContext(ctx, rightsScript(t, rightsBatches))
	require.NoError(t, err)
	suite.RunsBatches(t, ctx, producer, operator)
	require.NoError(t, chanqjobs.Migrate(ctx, producer, chanq.Config{}), "there is nothing to do")
	_, err = operator.ExecContext(ctx, "DELETE dbo.chanq__batches")
	requireRefused(t, 229, err)
}

func TestTheDocumentedPermissionsForTopicsSuffice(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.RealClock{}})
	producer := login(t, ctx, q, "chanq_producer")
	consumer, operator := member(t, ctx, q.Server, "chanq_consumer"), member(t, ctx, q.Server, "chanq_operator")
	require.NoError(t, chanqtopic.Migrate(ctx, member(t, ctx, q.Server, "chanq_migrator"), chanq.Config{}))
	_, err := q.DB().ExecContext(ctx, rightsScript(t, rightsTopics))
	require.NoError(t, err)
	suite.RunsTopics(t, ctx, producer, consumer, operator)
	_, err = producer.ExecContext(ctx, "DELETE dbo.chanq__subscriptions")
	requireRefused(t, 229, err)
}
