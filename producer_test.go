package chanq

import (
	"context"
	"database/sql"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/table"
)

func TestMessagesThatFitTheBufferOnlyOneByOneAreStored(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{BufferBytes: 10_000})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := range 10 {
				p.C() <- Message[[]byte]{Body: make([]byte, []int{2000, 9000}[i%2])}
			}
		})
	}
	sent := make(chan struct{})
	go func() { senders.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-soon(t).Done():
		require.Fail(t, "the intake waits for room that is never free")
	}
	require.NoError(t, p.Close(soon(t)))
	require.Equal(t, 40, counts(t, q).Ready)
}

func TestCloseReturnsThoughTheBufferIsFullOfWhatCannotBeStored(t *testing.T) {
	q := openTestQueue[chan int](t, Config{}) // JSON has no channels
	p := testProducer(t, q, ProducerConfig{BufferBytes: 600})
	sent := 0
	for full := false; !full; {
		select {
		case p.C() <- Message[chan int]{Body: make(chan int)}:
			sent++
		case <-time.After(100 * time.Millisecond):
			full = true
		}
	}
	ctx := soon(t)
	err := p.Close(ctx)
	require.NoError(t, ctx.Err())
	var unsent *UnsentError[chan int]
	require.ErrorAs(t, err, &unsent)
	require.Len(t, unsent.Unsent, sent)
}

func TestWhatTheChannelAcceptedDuringCloseIsStoredOrReturned(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	for range 20 {
		p, err := q.Producer(t.Context(), ProducerConfig{})
		require.NoError(t, err)
		var senders sync.WaitGroup
		var mu sync.Mutex
		accepted := 0
		for range 4 {
			senders.Go(func() {
				for i := range 1000 {
					select {
					case p.C() <- Message[int]{Body: i}:
						mu.Lock()
						accepted++
						mu.Unlock()
					case <-p.Done():
						return
					}
				}
			})
		}
		require.NoError(t, p.Close(soon(t)))
		senders.Wait()
		stored, err := q.core.db.Exec("DELETE FROM chanq_orders")
		require.NoError(t, err)
		n, err := stored.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, accepted, n)
	}
}

func TestFlushWorksAfterTheSenderClosedTheChannel(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	p.C() <- Message[int]{Body: 1}
	close(p.C())
	require.NoError(t, p.Flush(soon(t)))
	require.Equal(t, 1, counts(t, q).Ready)
}

// openSQLite opens an empty database directly with the driver: package embedded imports this one.
func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	path := filepath.ToSlash(filepath.Join(t.TempDir(), "q.db"))
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Bytes of memory of a message, without its bytes. A message in the buffer of a producer or a consumer takes them, and
// the garbage collector reads them.
func TestMessagesStaySmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(received[[]byte]{}), uintptr(144), "sent on C")
	require.LessOrEqual(t, unsafe.Sizeof(send.Item{}), uintptr(112), "sent by Send")
	require.LessOrEqual(t, unsafe.Sizeof(lease.Lease{}), uintptr(168), "leased")
	require.LessOrEqual(t, unsafe.Sizeof(Lease[[]byte]{}), uintptr(216), "delivered, in addition")
}

func TestAMessageThatIsNotStoredIsReturnedWithAllItsFields(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	all := Message[string]{
		ID: NewID(), Body: "body", Type: "type", Headers: map[string]string{"a": "b"}, Priority: PriorityHigh,
		Delay: time.Second, TTL: time.Hour, DedupKey: "dedup", OnDuplicate: Debounce, DebounceMax: time.Minute,
	}
	keyed := Message[string]{Key: "a"}
	for i := range reflect.TypeOf(all).NumField() {
		a, b := reflect.ValueOf(all).Field(i), reflect.ValueOf(keyed).Field(i)
		require.False(t, a.IsZero() && b.IsZero(), "a field is missing above: %s", reflect.TypeOf(all).Field(i).Name)
	}
	for _, m := range []Message[string]{all, keyed, {Body: "bare"}} {
		given := m
		item, err := p.prepare(&m, new(send.Rows), 1)
		require.Equal(t, given.Key != "", err != nil, "the queue is plain")
		given.ID = m.ID
		r := received[string]{Item: item, body: m.Body, headers: m.Headers}
		require.Equal(t, given, r.message())
		require.True(t, item.More == nil || item.More.Body == nil, "its body is not kept with the others' rows")
	}
}

func openTestQueue[T any](t *testing.T, cfg Config) *Queue[T] {
	t.Helper()
	db := openSQLite(t)
	require.NoError(t, Migrate(t.Context(), db, "orders", cfg))
	q, err := Open[T](t.Context(), db, "orders", cfg)
	require.NoError(t, err)
	return q
}

// counts returns the numbers of messages of a queue.
func counts[T any](t testing.TB, q *Queue[T]) (c table.Counts) {
	t.Helper()
	require.NoError(t, q.core.once(context.Background(), q.core.table.SQL.Stats(table.CountLimit), c.Scan))
	return c
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func testConsumer[T any](t *testing.T, q *Queue[T], cfg ConsumerConfig) *Consumer[T] {
	t.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

func testProducer[T any](t *testing.T, q *Queue[T], cfg ProducerConfig) *Producer[T] {
	t.Helper()
	p, err := q.Producer(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}
