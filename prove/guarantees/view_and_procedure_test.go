package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The interfaces for other programs besides the tables: the view and the procedure.
var viewAndProcedure = []test{
	{"TheViewShowsWhatIsInAQueue", viewShows},
	{"TheViewOfAnOrderedQueueShowsWhatIsInIt", viewShowsOrdered},
	{"TheViewIsBounded", viewBounded},
	{"TheViewWaitsForNoLockAndHoldsOneAtMost", viewBesideLocks},
	{"TheProcedureSends", procedureSends},
	{"TheProcedureKnowsTheSlotOfAKey", procedureKnowsSlots},
	{"AProcedureThatFailsTreatsTheCallersTransactionAsDocsSay", procedureInTx},
	{"ASessionWithoutTheSettingsSendsByTheProcedure", procedureWithoutSettings},
	{"DropRemovesTheViewAndTheProcedure", dropFace},
}

// face creates the view and the procedure of a queue, twice.
func (w *world) face(queue string, cfg chanq.Config) {
	w.Helper()
	texts, err := chanq.View(w.Engine.ChanqDialect(), queue, cfg)
	require.NoError(w, err)
	procedures, err := chanq.Procedures(w.Engine.ChanqDialect(), queue, cfg)
	if w.Engine.Dialect.Name() == "sqlite" {
		require.ErrorIs(w, err, errors.ErrUnsupported)
	} else {
		require.NoError(w, err)
	}
	conn, err := w.Tables().Conn(w.Soon())
	require.NoError(w, err)
	defer conn.Close()
	if w.Engine.Dialect.Name() == "sqlserver" {
		texts = append([]string{"SET QUOTED_IDENTIFIER, ANSI_NULLS OFF"}, append(texts, procedures...)...)
		procedures = nil
	}
	for range 2 {
		for _, text := range append(texts, procedures...) {
			_, err := conn.ExecContext(w.Soon(), text)
			require.NoError(w, err, text)
		}
	}
}

// shown returns the rows of the view as text, one line per row.
func (w *world) shown(columns, end string) (lines []string) {
	w.Helper()
	rows, err := w.DB.QueryContext(w.Soon(), "SELECT "+columns+" FROM chanq_work__messages "+end)
	require.NoError(w, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(w, err)
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(w, rows.Scan(into...))
		texts := make([]string, len(names))
		for i, v := range values {
			if texts[i] = v.String; !v.Valid {
				texts[i] = "NULL"
			}
		}
		lines = append(lines, strings.Join(texts, " "))
	}
	require.NoError(w, rows.Err())
	return lines
}

func viewShows(w *world) {
	q := w.Queue("work", chanq.Config{})
	w.face("work", chanq.Config{})
	testdb.Send(w, q, chanq.Message[string]{Body: "taken", Priority: chanq.PriorityUrgent}, chanq.Message[string]{Body: "dying", Priority: chanq.PriorityHigh})
	leases := testdb.Lease(w, q, 2, time.Hour)
	require.NoError(w, leases[1].Nack(chanq.DeadLetter(errors.New("over"))))
	testdb.Send(w, q,
		chanq.Message[string]{Body: "waiting", Delay: time.Hour, Headers: map[string]string{"a": "b"}},
		chanq.Message[string]{Body: "free", DedupKey: "key", Type: "kind", TTL: time.Hour},
		chanq.Message[string]{Body: strings.Repeat("x", 5000), Priority: chanq.PriorityLow})
	w.Exec("INSERT INTO chanq_work (priority, body) VALUES (-1, " + w.sqlBytes("\xFF\x80\x01") + ")")
	require.Equal(w, []string{
		"dead 1 dying 5 NULL NULL over", "leased 2 taken 5 NULL NULL NULL", "ready 0 free 4 key kind NULL", "scheduled 0 waiting 7 NULL NULL NULL",
	}, w.shown(`state, priority, body, bytes, dedup_key, "type", last_error`, "WHERE priority >= 0 ORDER BY state"))
	require.Equal(w, []string{`{"a":"b"} 1`}, w.shown("headers, CASE WHEN due_at > enqueued_at THEN 1 ELSE 0 END", "WHERE state = 'scheduled'"))
	require.Equal(w, []string{"1"}, w.shown("CASE WHEN expires_at > due_at AND lease_until IS NULL THEN 1 END", "WHERE body = 'free'"))
	require.Equal(w, []string{"1"}, w.shown("CASE WHEN lease_until > due_at AND ended_at IS NULL THEN 1 END", "WHERE state = 'leased'"))
	require.Equal(w, []string{"1"}, w.shown("CASE WHEN ended_at >= enqueued_at AND due_at IS NULL THEN 1 END", "WHERE state = 'dead'"))
	require.Equal(w, []string{"3", "5000"}, w.shown("bytes", "WHERE priority = -1 ORDER BY bytes"), "bodies that are not text cause no error")
	require.Equal(w, []string{strings.Repeat("x", 4000)}, w.shown("body", "WHERE bytes = 5000"), "a body is cut")
	id := strings.ToLower(strings.ReplaceAll(w.shown("id", "WHERE state = 'leased'")[0], "-", ""))
	require.Equal(w, fmt.Sprintf("%x", leases[0].ID[:]), id)
	require.NoError(w, leases[0].Release())
}

func viewShowsOrdered(w *world) {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}
	q := w.Queue("work", cfg)
	w.face("work", cfg)
	ids := testdb.Send(w, q, chanq.Message[string]{Body: "first", Key: "a"}, chanq.Message[string]{Body: "second", Key: "a"})
	l := testdb.Lease(w, q, 1, time.Hour)[0]
	require.NoError(w, l.Nack(chanq.DeadLetter(errors.New("over"))))
	w.Eventually("a message that waits for its key is released with its slot", func() bool { return testdb.Get(w, q, ids[1]).State == chanqadmin.StateReady })
	slot := sqlbatch.SlotOf("a", [16]byte{}, 4)
	require.Equal(w, []string{fmt.Sprintf("dead first a %d", slot), fmt.Sprintf("ready second a %d", slot)}, w.shown("state, body, order_key, slot", "ORDER BY seq"))
}

func viewBounded(w *world) {
	q := w.Queue("work", chanq.Config{})
	w.face("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(numbers(1010)...)...)
	require.Equal(w, []string{"1000"}, w.shown("count(*)", ""))
	first := numbers(1010)[0]
	require.Equal(w, []string{first}, w.shown("body", "WHERE body = '"+first+"'"), "the view shows the first messages")
}

func viewBesideLocks(w *world) {
	q := w.Queue("work", chanq.Config{})
	w.face("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("locked", "free")...)
	if w.oneWriter() {
		require.Len(w, w.shown("body", ""), 2)
		return
	}
	tx := w.begin(w.DB)
	defer tx.Rollback()
	_, err := tx.ExecContext(w.Soon(), "UPDATE chanq_work SET attempts = 3 WHERE body = "+w.sqlBytes("locked"))
	require.NoError(w, err)
	require.Contains(w, w.shown("body", ""), "free", "the locked message is left out or unchanged")

	// A reader of the view that stops half-way blocks at most one message.
	require.NoError(w, tx.Rollback())
	testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
	rows, err := w.DB.QueryContext(w.Soon(), "SELECT body FROM chanq_work__messages")
	require.NoError(w, err)
	defer rows.Close()
	require.True(w, rows.Next())
	for _, l := range testdb.Lease(w, q, 21, time.Hour)[1:] {
		require.NoError(w, l.Ack())
	}
}

// sendBy calls the procedure.
func (w *world) sendBy(ctx context.Context, x interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, body string, rest string) error {
	text := "EXEC chanq_work__send N'" + body + "'" + rest
	if w.Engine.Dialect.Name() == "postgres" {
		text = "SELECT chanq_work__send('" + body + "'" + strings.NewReplacer("@", "", "_ms", "", "N'", "'", " = ", " => ", "3600000", "interval '1 hour'").Replace(rest) + ")"
	}
	_, err := x.ExecContext(ctx, text)
	return err
}

func (w *world) hasProcedures() bool { return w.Engine.Dialect.Name() != "sqlite" }

func procedureSends(w *world) {
	q := testdb.QueueOf[note](w, "work", chanq.Config{})
	w.face("work", chanq.Config{})
	if !w.hasProcedures() {
		return
	}
	send := func(body, rest string) { require.NoError(w, w.sendBy(w.Soon(), w.DB, body, rest)) }
	send(`{"Text":"日本"}`, ``)
	send(`{"Text":"keyed"}`, `, @dedup_key = N'ключ 😀', @priority = 2, @headers = N'{"a":"ü"}', @type = N'kind'`)
	send(`{"Text":"later"}`, `, @delay_ms = 3600000`)
	require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, `, @dedup_key = N'ключ 😀'`), "the key is taken")
	require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, `, @dedup_key = N'`+strings.Repeat("k", 201)+`'`), "the key is too long")
	require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, `, @priority = 3`))
	require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, `, @type = N'`+strings.Repeat("t", 101)+`'`), "the type is too long")
	leases := testdb.Leases(testdb.Lease(w, q, 2, time.Hour))
	require.Equal(w, []note{{"keyed"}, {"日本"}}, testdb.Bodies(leases))
	require.Equal(w, "ключ 😀", leases[0].DedupKey)
	require.Equal(w, []string{"kind", ""}, []string{leases[0].Type, leases[1].Type})
	require.Equal(w, chanq.PriorityUrgent, leases[0].Priority)
	require.Equal(w, map[string]string{"a": "ü"}, leases[0].Headers)
	require.Equal(w, 1, testdb.Stats(w, q).Scheduled)
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
}

func procedureKnowsSlots(w *world) {
	const slots = 64
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: slots}}
	w.Queue("work", cfg)
	if !w.hasProcedures() {
		return
	}
	q := testdb.OpenOn[note](w, w.DB, "work", cfg)
	w.face("work", cfg)
	keys := []string{"a", "customer-7", "ü", "日本", "😀 and more", strings.Repeat("k", sqlbatch.MaxOrderKey), ""}
	for _, key := range keys {
		require.NoError(w, w.sendBy(w.Soon(), w.DB, `{"Text":"`+key+`"}`, `, @key = N'`+key+`'`))
	}
	require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, `, @key = N'`+strings.Repeat("k", 201)+`'`))
	entries, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 100)
	require.NoError(w, err)
	require.Len(w, entries, len(keys))
	for i, e := range entries {
		require.Equal(w, keys[i], e.Key, "in the order of the sends")
		require.Equal(w, sqlbatch.SlotOf(e.Key, e.ID, slots), e.Slot, "%q", e.Key)
	}
}

// procedureInTx runs only on SQL Server, where the effect of an error on the transaction depends on
// the kind of queue.
func procedureInTx(w *world) {
	if w.Engine.Dialect.Name() != "sqlserver" {
		return
	}
	for left, cfg := range map[int]chanq.Config{1: {}, 0: {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}} {
		w.Open()
		require.NoError(w, chanq.Migrate(w.Soon(), w.DB, "work", cfg))
		w.face("work", cfg)
		conn, err := w.DB.Conn(w.Soon())
		require.NoError(w, err)
		_, err = conn.ExecContext(w.Soon(), "BEGIN TRANSACTION")
		require.NoError(w, err)
		require.NoError(w, w.sendBy(w.Soon(), conn, `{}`, `, @dedup_key = N'k'`))
		require.Error(w, w.sendBy(w.Soon(), conn, `{}`, `, @dedup_key = N'k'`))
		var open, sent int
		require.NoError(w, conn.QueryRowContext(w.Soon(), "SELECT @@TRANCOUNT").Scan(&open))
		require.Equal(w, left, open)
		if open > 0 {
			_, err = conn.ExecContext(w.Soon(), "COMMIT TRANSACTION")
			require.NoError(w, err)
		}
		require.NoError(w, conn.QueryRowContext(w.Soon(), "SELECT COUNT(*) FROM chanq_work").Scan(&sent))
		require.Equal(w, left, sent, "the earlier writes of the transaction")
		require.NoError(w, conn.Close())
		_, err = w.DB.ExecContext(w.Soon(), "DELETE FROM chanq_work")
		require.NoError(w, err)
		require.NoError(w, chanqadmin.Drop(w.Soon(), w.DB, "work", cfg, chanqadmin.Change{}))
	}
}

func procedureWithoutSettings(w *world) {
	if w.Engine.Dialect.Name() != "sqlserver" {
		return
	}
	q := testdb.QueueOf[note](w, "work", chanq.Config{})
	w.face("work", chanq.Config{})
	for i, setting := range []string{"QUOTED_IDENTIFIER OFF", "ANSI_NULLS OFF", "ANSI_WARNINGS OFF", "ANSI_PADDING OFF", "CONCAT_NULL_YIELDS_NULL OFF", "NUMERIC_ROUNDABORT ON"} {
		conn, err := w.DB.Conn(w.Soon())
		require.NoError(w, err)
		_, err = conn.ExecContext(w.Soon(), "SET "+setting)
		require.NoError(w, err)
		_, err = conn.ExecContext(w.Soon(), "INSERT INTO chanq_work (body) VALUES (0x7B7D)")
		require.ErrorContains(w, err, "incorrect settings", setting)
		require.NoError(w, w.sendBy(w.Soon(), conn, fmt.Sprintf(`{"Text":"%d"}`, i), ""), setting)
		require.NoError(w, conn.Close())
	}
	leases := testdb.Lease(w, q, 6, time.Hour)
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
}

func dropFace(w *world) {
	for _, cfg := range []chanq.Config{{}, {Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}} {
		require.NoError(w, w.Migrate("work", cfg))
		w.face("work", cfg)
		require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", cfg, chanqadmin.Change{}))
		_, err := w.DB.ExecContext(w.Soon(), "SELECT * FROM chanq_work__messages")
		require.Error(w, err)
		if w.hasProcedures() {
			require.Error(w, w.sendBy(w.Soon(), w.DB, `{}`, ""))
		}
	}
}
