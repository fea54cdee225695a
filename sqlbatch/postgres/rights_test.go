package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtopic"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// orders has the statements of the queue that no method of a test runs.
var orders = postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})

var roles = []string{"migrator", "producer", "consumer", "operator"}

// rights is a database with the roles of docs/rights/postgres.sql and their part 2. Roles belong to the server, so this test's have
// unique names.
type rights struct {
	*testing.T
	ctx    context.Context
	config *pgx.ConnConfig
	rename *strings.Replacer
	part2  string
	part3  string // of an ordered queue
	part4  string // of schedules
	part5  string // of batches
	part6  string // of results
	part7  string // of OnDuplicate
	part8  string // of topics
}

func newRights(t *testing.T) *rights {
	text, err := os.ReadFile("../../docs/rights/postgres.sql")
	require.NoError(t, err)
	part1, part2, ok := strings.Cut(string(text), "-- Part 2")
	require.True(t, ok)
	part2, part3, ok := strings.Cut(part2, "-- Part 3")
	require.True(t, ok)
	part3, part4, ok := strings.Cut(part3, "-- Part 4")
	require.True(t, ok)
	part4, part5, ok := strings.Cut(part4, "-- Part 5")
	require.True(t, ok)
	part5, part6, ok := strings.Cut(part5, "-- Part 6")
	require.True(t, ok)
	part6, part7, ok := strings.Cut(part6, "-- Part 7")
	require.True(t, ok)
	part7, part8, ok := strings.Cut(part7, "-- Part 8")
	require.True(t, ok)
	var names, own []string
	for _, role := range roles {
		name := fmt.Sprintf("chanq_%s_%x", role, chanq.NewID())
		own = append(own, name)
		names = append(names, "chanq_"+role, name)
	}
	dsn := os.Getenv(pgtest.Variable)
	t.Cleanup(func() { // after the database is dropped
		if dsn == "" {
			return
		}
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		server := stdlib.OpenDB(*config)
		defer server.Close()
		_, err = server.Exec("DROP ROLE " + strings.Join(own, ", "))
		require.NoError(t, err)
	})
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Patience)
	t.Cleanup(cancel)
	r := &rights{t, ctx, pgtest.Config(t), strings.NewReplacer(names...), part2, part3, part4, part5, part6, part7, part8}
	owner := stdlib.OpenDB(*r.config)
	defer owner.Close()
	_, err = owner.Exec(r.rename.Replace(part1))
	require.NoError(t, err)
	return r
}

// as returns a connection pool for a role.
func (r *rights) as(role string) *sql.DB {
	db := stdlib.OpenDB(*r.config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, r.rename.Replace("SET ROLE chanq_"+role))
		return err
	}))
	r.Cleanup(func() { require.NoError(r, db.Close()) })
	return db
}

// migrated makes the migrator create the queue and grant the permissions on it.
func (r *rights) migrated() *rights {
	migrator := r.as("migrator")
	require.NoError(r, chanq.Migrate(r.ctx, migrator, "orders", chanq.Config{}))
	require.NoError(r, chanq.Migrate(r.ctx, migrator, "orders", chanq.Config{}), "again")
	_, err := migrator.ExecContext(r.ctx, r.rename.Replace("-- "+r.part2))
	require.NoError(r, err)
	return r
}

// migratedOrdered does the same for an ordered queue.
func (r *rights) migratedOrdered(cfg chanq.Config) *rights {
	migrator := r.as("migrator")
	require.NoError(r, chanq.Migrate(r.ctx, migrator, "orders", cfg))
	_, err := migrator.ExecContext(r.ctx, r.rename.Replace("-- "+r.part2+"-- "+r.part3))
	require.NoError(r, err)
	return r
}

func (r *rights) open(db *sql.DB, cfg chanq.Config) (*chanq.Queue[string], *chanq.Producer[string]) {
	q, err := chanq.Open[string](r.ctx, db, "orders", cfg)
	require.NoError(r, err)
	p, err := q.Producer(context.Background(), chanq.ProducerConfig{})
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, p.Close(r.ctx)) })
	return q, p
}

// runs requires that statements of chanq are allowed.
func (r *rights) runs(db *sql.DB, statements ...sqlbatch.Statement) {
	r.Helper()
	for _, st := range statements {
		_, err := db.ExecContext(r.ctx, st.Text, st.Args...)
		require.NoError(r, err, st.Text)
	}
}

// requireRefused: insufficient_privilege.
func (r *rights) requireRefused(err error) {
	r.Helper()
	var state interface{ SQLState() string }
	require.ErrorAs(r, err, &state)
	require.Equal(r, "42501", state.SQLState(), err)
	require.ErrorContains(r, err, "permission denied")
}

func (r *rights) refuses(db *sql.DB, texts ...string) {
	r.Helper()
	for _, text := range texts {
		_, err := db.ExecContext(r.ctx, text)
		var state interface{ SQLState() string }
		require.ErrorAs(r, err, &state, text)
		require.Equal(r, "42501", state.SQLState(), text)
	}
}

func TestAProducerReadsNoBody(t *testing.T) {
	r := newRights(t).migrated()
	db := r.as("producer")
	q, p := r.open(db, chanq.Config{})
	_, err := p.Send(r.ctx, chanq.Message[string]{Body: "plain", Headers: map[string]string{"a": "b"}})
	require.NoError(t, err)
	for _, duplicate := range []bool{false, true} {
		receipt, err := p.Send(r.ctx, chanq.Message[string]{Body: "keyed", DedupKey: "k"})
		require.NoError(t, err)
		require.Equal(t, duplicate, receipt.Duplicate)
	}
	id := chanq.NewID()
	for range 2 { // the second as after an unknown outcome
		_, err = p.Send(r.ctx, chanq.Message[string]{ID: id, Body: "repeated"})
		require.NoError(t, err)
	}
	tx, err := db.BeginTx(r.ctx, nil)
	require.NoError(t, err)
	_, err = q.SendTx(r.ctx, tx, chanq.Message[string]{Body: "in tx", DedupKey: "k"})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	c, err := q.Consume(r.ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	for range c.C() { // the channel is closed
	}
	r.requireRefused(c.Err())
	require.Equal(t, c.Err(), c.Shutdown(r.ctx))
	_, err = testdb.Peek(r.ctx, q, chanqadmin.StateReady, 1)
	r.requireRefused(err)
	r.requireRefused(errors.Unwrap(testdb.Pause(r.ctx, q)))
	r.requireRefused(chanq.Migrate(r.ctx, db, "invoices", chanq.Config{}))
	r.runs(db, orders.Problems(), orders.Clock(), orders.Sample(sqlbatch.Sample{Sent: 1}), orders.Thin())
	r.refuses(db, orders.Consumers().Text, "DELETE FROM chanq__consumers", "SELECT body FROM chanq_orders", "SELECT headers FROM chanq_orders", "SELECT last_error FROM chanq_orders",
		"SELECT body FROM chanq_orders__dead", "DELETE FROM chanq_orders", "UPDATE chanq_orders SET fence = 0", "ALTER TABLE chanq_orders ADD x int")
}

// A role without permission to count the messages still deletes old history: there might be no other role.
func TestAProducerAloneKeepsTheHistoryBounded(t *testing.T) {
	t.Parallel()
	r := newRights(t).migrated()
	owner := stdlib.OpenDB(*r.config)
	defer owner.Close()
	_, err := owner.ExecContext(r.ctx, `INSERT INTO chanq__samples (queue, step, at, sent, acked, nacked, died, delivered) VALUES ('orders', 10, 0, 1, 0, 0, 0, 0)`)
	require.NoError(t, err)
	_, p := r.open(r.as("producer"), chanq.Config{})
	require.Eventually(t, func() bool {
		_, err := p.Send(r.ctx, chanq.Message[string]{})
		require.NoError(t, err)
		var old int
		require.NoError(t, owner.QueryRowContext(r.ctx, "SELECT count(*) FROM chanq__samples WHERE at = 0").Scan(&old))
		return old == 0
	}, 45*time.Second, 200*time.Millisecond)
	var counted int
	require.NoError(t, owner.QueryRowContext(r.ctx, "SELECT count(ready) FROM chanq__samples").Scan(&counted))
	require.Zero(t, counted, "it has no permission to count")
}

func TestAConsumerChangesNoTableDefinition(t *testing.T) {
	r := newRights(t).migrated()
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
	require.NoError(t, chanq.Migrate(r.ctx, r.as("migrator"), "orders", cfg))
	_, p := r.open(r.as("producer"), cfg)
	for range 5 {
		_, err := p.Send(r.ctx, chanq.Message[string]{Body: "a"})
		require.NoError(t, err)
	}
	db := r.as("consumer")
	q, own := r.open(db, cfg)
	c, err := q.Consume(r.ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	settle := []func(*chanq.Lease[string]) error{
		(*chanq.Lease[string]).Ack,
		func(l *chanq.Lease[string]) error { return l.Nack(chanq.RetryAfter(time.Hour, errors.New("later"))) },
		func(l *chanq.Lease[string]) error { return l.Nack(chanq.DeadLetter(errors.New("no"))) },
		func(l *chanq.Lease[string]) error {
			if err := l.Extend(r.ctx, time.Minute); err != nil {
				return err
			}
			tx, err := db.BeginTx(r.ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			return errors.Join(l.AckTx(r.ctx, tx), tx.Commit())
		},
	}
	var last *chanq.Lease[string]
	for i := range 5 {
		l := <-c.C()
		if i == len(settle) {
			last = l
			break
		}
		require.NoError(t, settle[i](l))
	}
	require.NoError(t, c.Flush(r.ctx))
	require.NoError(t, last.Release())
	require.NoError(t, last.Wait(r.ctx))
	require.NoError(t, c.Shutdown(r.ctx))
	require.NoError(t, c.Err())
	stats, err := testdb.Admin(q).Stats(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1, 2}, []int{stats.Ready, stats.Scheduled, stats.Dead, stats.Done})

	item := sqlbatch.Item{Fence: 1}
	r.runs(db, orders.Trim(sqlbatch.Done, 0, 10, 0), orders.Trim(sqlbatch.Dead, time.Hour, 10, 0), // with Spec.Retain and Spec.RetainDead
		orders.Problems(), orders.Clock(), orders.Look([][16]byte{{}}), orders.Join(sqlbatch.Consumer{For: time.Hour}), orders.Consumers(), orders.Leave([16]byte{}),
		orders.Sample(sqlbatch.Sample{Depth: &sqlbatch.Depth{}}), orders.Samples(0, time.Minute), orders.Thin(),
		orders.SkipLocked().Ack([]sqlbatch.Item{item}), orders.SkipLocked().Archive([]sqlbatch.Item{item}), orders.SkipLocked().DeadLetter([]sqlbatch.DeadLetterItem{{Item: item}}),
		orders.SkipLocked().Nack([]sqlbatch.NackItem{{Item: item}}), orders.SkipLocked().Snooze([]sqlbatch.NackItem{{Item: item}}), orders.SkipLocked().Release(suite.Releases([]sqlbatch.Item{item})),
		orders.SkipLocked().Extend(suite.Consumer, []sqlbatch.Item{item}, time.Hour))

	_, err = own.Send(r.ctx, chanq.Message[string]{})
	r.requireRefused(err)
	r.requireRefused(errors.Unwrap(testdb.Pause(r.ctx, q)))
	_, err = testdb.Redrive(r.ctx, q, 0)
	r.requireRefused(err)
	r.requireRefused(chanq.Migrate(r.ctx, db, "invoices", chanq.Config{}))
	r.refuses(db, "ALTER TABLE chanq_orders ADD x int", "UPDATE chanq_orders SET expires_at = NULL", "UPDATE chanq_orders SET body = ''", "DROP TABLE chanq_orders", "TRUNCATE chanq_orders")
}

func TestTheRoleOfAnOperatorSufficesForAllOtherStatements(t *testing.T) {
	r := newRights(t).migrated()
	_, p := r.open(r.as("producer"), chanq.Config{})
	for range 3 {
		_, err := p.Send(r.ctx, chanq.Message[string]{Body: "a"})
		require.NoError(t, err)
	}
	consumer, _ := r.open(r.as("consumer"), chanq.Config{})
	leases := testdb.Lease(t, consumer, 2, time.Minute)
	for _, l := range leases {
		require.NoError(t, l.Nack(chanq.DeadLetter(errors.New("no"))))
	}
	db := r.as("operator")
	q, err := chanq.Open[string](r.ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	require.NoError(t, testdb.Pause(r.ctx, q))
	logged := chanqadmin.Change{Unlogged: func(err error) { require.NoError(t, err) }}
	require.NoError(t, testdb.Admin(q).Configure(r.ctx, chanq.Spec{MaxAttempts: 5}, logged))
	require.NoError(t, testdb.Admin(q).Resume(r.ctx, logged))
	dead, err := testdb.Peek(r.ctx, q, chanqadmin.StateDead, 10)
	require.NoError(t, err)
	require.Len(t, dead, 2)
	_, err = testdb.RedriveIDs(r.ctx, q, dead[0].ID)
	require.NoError(t, err)
	n, err := testdb.Redrive(r.ctx, q, 0)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = q.Cancel(r.ctx, dead[0].ID)
	require.NoError(t, err)
	for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone} {
		_, err = testdb.Purge(r.ctx, q, state)
		require.NoError(t, err, state)
	}
	_, err = testdb.Admin(q).Release(r.ctx, chanq.NewID(), chanqadmin.Change{})
	require.NoError(t, err)
	r.runs(db, orders.Leave([16]byte{}), orders.Surrender([16]byte{}, [][16]byte{{}}), orders.Sample(sqlbatch.Sample{Depth: &sqlbatch.Depth{}}))
	r.runs(db, orders.Consumers(), orders.Samples(0, time.Minute), orders.Problems(), orders.Clock(), orders.Queues(), orders.Discard([][16]byte{{}}), orders.Redrive(1, nil, sqlbatch.Window{Before: 1}))
	r.refuses(db, "UPDATE chanq__consumers SET until = 0", "DELETE FROM chanq__samples", "ALTER TABLE chanq_orders ADD x int", "DROP TABLE chanq_orders", "INSERT INTO chanq__queues (name, version) VALUES ('x', 1)")
	r.requireRefused(chanqadmin.Drop(r.ctx, db, "orders", chanq.Config{}, chanqadmin.Change{}))
	require.NoError(t, chanqadmin.Drop(r.ctx, r.as("migrator"), "orders", chanq.Config{}, chanqadmin.Change{}))
}

// The permissions that each statement of an ordered queue needs, role by role.
func TestEachRoleSufficesForAnOrderedQueue(t *testing.T) {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}
	r := newRights(t).migratedOrdered(cfg)
	q := postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders", Slots: 4})
	row := func() []sqlbatch.Row { return []sqlbatch.Row{{ID: chanq.NewID(), OrderKey: "a", Slot: 1}} }
	items := []sqlbatch.Item{{Fence: 1}}

	producer := r.as("producer")
	producer.SetMaxOpenConns(1) // Begun and EnqueueBegun use the same session
	r.runs(producer, q.Enqueue(row()), q.EnqueueNew(row()), q.Begun(), q.EnqueueBegun(row()), q.Empty())
	r.refuses(producer, "SELECT last_value FROM chanq_orders__seq", "SELECT setval('chanq_orders__seq', 1)", "SELECT * FROM chanq__slots", "SELECT order_key FROM chanq_orders")

	consumer := r.as("consumer")
	own := []sqlbatch.OwnedSlot{{Slot: 1}}
	r.runs(consumer, q.Read(sqlbatch.ReadParams{Consumer: suite.Consumer, Slots: own, Rows: 10, Behind: 10}), q.Refill(sqlbatch.ReadParams{Consumer: suite.Consumer, Slots: own, Keys: []string{"a"}}),
		q.Fetch(suite.Consumer, own, [][16]byte{{1}}), q.LookOrdered(suite.Consumer, own, [][16]byte{{1}}), q.HeldKeys([]int{1}, []string{"a"}),
		q.MarkOrdered(suite.Consumer, []sqlbatch.MarkItem{{Item: items[0]}}), q.ReleaseOrdered(suite.Consumer, suite.Releases(items), true), q.Release(suite.Releases(items)),
		q.Nack([]sqlbatch.NackItem{{Item: items[0]}}))
	r.runs(consumer, q.Join(sqlbatch.Consumer{ID: suite.Consumer, For: time.Hour}), q.Slots(), q.TakeSlots(suite.Consumer, 1, []int{1}),
		q.Extend(suite.Consumer, items, time.Minute), q.SkipLocked().Extend(suite.Consumer, items, time.Minute), q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[0]}}),
		q.Archive(items), q.SlotStats(10), q.Empty(), q.GiveSlots(suite.Consumer, []sqlbatch.OwnedSlot{{Slot: 1}}))
	r.refuses(consumer, "SELECT nextval('chanq_orders__seq')", "UPDATE chanq_orders SET seq = 1", "UPDATE chanq_orders SET slot = 1", "UPDATE chanq_orders SET order_key = ''",
		"DELETE FROM chanq__slots", "INSERT INTO chanq__slots (queue, slot) VALUES ('orders', 9)", "UPDATE chanq__slots SET slot = 1")

	operator := r.as("operator")
	r.runs(operator, q.Stats(10), q.Empty(), q.SlotStats(10), q.Slots(), q.Redrive(10, nil, sqlbatch.Window{}), q.Reach(0, 10), q.Peek(sqlbatch.Dead, 10, nil), q.Peek(sqlbatch.Done, 10, nil))
	for _, state := range []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done} {
		r.runs(operator, q.Browse(state, 10, nil, sqlbatch.Filter{}), q.Purge(state, 10, sqlbatch.Window{}))
	}
	r.refuses(operator, "UPDATE chanq__slots SET consumer = NULL", "SELECT nextval('chanq_orders__seq')")
	require.NoError(t, chanqadmin.Drop(r.ctx, r.as("migrator"), "orders", cfg, chanqadmin.Change{}))
}

// A consumer also notices deaths, and stores results and progress.
func TestTheDocumentedPermissionsForReactionsToJobsSuffice(t *testing.T) {
	r := newRights(t).migrated()
	consumer := r.as("consumer")
	require.NoError(t, chanqjobs.Migrate(r.ctx, r.as("migrator"), chanq.Config{}))
	_, err := r.as("migrator").ExecContext(r.ctx, r.rename.Replace("-- "+r.part6))
	require.NoError(t, err)
	for _, text := range []string{
		"UPDATE chanq_orders__dead SET noticed_at = 1 WHERE id IN (SELECT id FROM chanq_orders__dead WHERE noticed_at = 0 FOR UPDATE SKIP LOCKED) RETURNING fence",
		"INSERT INTO chanq__results (queue, id, result, until) VALUES ('orders', gen_random_uuid(), '', 0) ON CONFLICT (queue, id) DO UPDATE SET until = excluded.until",
		"INSERT INTO chanq__progress AS p (queue, id, fence, at, done, note) VALUES ('orders', gen_random_uuid(), 1, 1, 1, '') ON CONFLICT (queue, id) DO UPDATE SET at = excluded.at WHERE p.fence <= excluded.fence",
		"DELETE FROM chanq__results WHERE until < -7",
		"DELETE FROM chanq__progress WHERE at < -7",
	} {
		_, err := consumer.ExecContext(r.ctx, text)
		require.NoError(t, err, text)
	}
	r.refuses(r.as("operator"), "DELETE FROM chanq__results")
	require.NoError(t, chanqadmin.Drop(r.ctx, r.as("migrator"), "orders", chanq.Config{}, chanqadmin.Change{}))
	rows, err := suite.Rows(r.ctx, consumer, sqlbatch.Statement{Text: "SELECT queue FROM chanq__results UNION SELECT queue FROM chanq__progress"})
	require.NoError(t, err)
	require.Empty(t, rows)
}

func TestTheDocumentedPermissionsForOnDuplicateSuffice(t *testing.T) {
	r := newRights(t).migrated()
	q, err := chanq.Open[string](r.ctx, r.as("producer"), "orders", chanq.Config{})
	require.NoError(t, err)
	r.requireRefused(suite.SendsOver(r.ctx, q))
	_, err = r.as("migrator").ExecContext(r.ctx, r.rename.Replace("-- "+r.part7))
	require.NoError(t, err)
	require.NoError(t, suite.SendsOver(r.ctx, q))
	r.refuses(r.as("producer"), "SELECT last_error FROM chanq_orders", "UPDATE chanq_orders SET leased_by = NULL", "DELETE FROM chanq_orders")
}

func TestTheDocumentedPermissionsForSchedulesSuffice(t *testing.T) {
	r := newRights(t).migrated()
	migrator, producer := r.as("migrator"), r.as("producer")
	require.NoError(t, chanqcron.Migrate(r.ctx, migrator, chanq.Config{}))
	_, err := migrator.ExecContext(r.ctx, r.rename.Replace("-- "+r.part4))
	require.NoError(t, err)
	suite.RunsSchedules(t, r.ctx, producer, r.as("operator"))
	require.NoError(t, chanqcron.Migrate(r.ctx, producer, chanq.Config{}), "there is nothing to do")
	r.refuses(producer, "DELETE FROM chanq__schedules", "UPDATE chanq__tables SET version = 9")
	r.refuses(r.as("operator"), "UPDATE chanq__tables SET version = 9", "INSERT INTO chanq__tables (name, version, min_version) VALUES ('x', 1, 1)")
}

func TestTheDocumentedPermissionsForTopicsSuffice(t *testing.T) {
	r := newRights(t).migrated()
	migrator, producer := r.as("migrator"), r.as("producer")
	require.NoError(t, chanqtopic.Migrate(r.ctx, migrator, chanq.Config{}))
	_, err := migrator.ExecContext(r.ctx, r.rename.Replace("-- "+r.part8))
	require.NoError(t, err)
	suite.RunsTopics(t, r.ctx, producer, r.as("consumer"), r.as("operator"))
	r.refuses(producer, "DELETE FROM chanq__subscriptions")
	r.refuses(r.as("operator"), "INSERT INTO chanq__subscriptions (topic, queue, filter) VALUES ('x', 'orders', '{}')")
}

func TestTheDocumentedPermissionsForBatchesSuffice(t *testing.T) {
	r := newRights(t).migrated()
	migrator, producer, operator := r.as("migrator"), r.as("producer"), r.as("operator")
	require.NoError(t, chanqjobs.Migrate(r.ctx, migrator, chanq.Config{}))
	_, err := migrator.ExecContext(r.ctx, r.rename.Replace("-- "+r.part5))
	require.NoError(t, err)
	suite.RunsBatches(t, r.ctx, producer, operator)
	require.NoError(t, chanqjobs.Migrate(r.ctx, producer, chanq.Config{}), "there is nothing to do")
	r.refuses(producer, "SELECT body FROM chanq_orders__dead", "UPDATE chanq__tables SET version = 9")
	r.refuses(operator, "DELETE FROM chanq__batches", "UPDATE chanq__batches SET done_at = 0")
}
