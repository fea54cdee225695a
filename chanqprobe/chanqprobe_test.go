package chanqprobe_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqprobe"
	"github.com/chanq/chanq/embedded"
)

func get(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Code, w.Body.String()
}

func TestAProgramIsReadyUnlessItsDatabaseIsAway(t *testing.T) {
	p := chanqprobe.New()
	is := func(handler http.Handler, status int, text string) {
		t.Helper()
		code, body := get(handler)
		require.Equal(t, status, code)
		require.Equal(t, text, body)
	}
	h := p.Hooks()
	is(p.Ready(), 200, "ok\n")
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer", Up: true})
	is(p.Ready(), 503, "mail: the database does not answer a consumer\n")
	is(p.Live(), 200, "ok\n")
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer", Up: true})
	is(p.Ready(), 200, "ok\n")
}

func TestOneShardThatIsAwayLeavesAProgramReady(t *testing.T) {
	p := chanqprobe.New()
	tell := func(shard string, up bool) int {
		p.Hooks().Availability(chanq.AvailabilityEvent{Queue: "mail", Shard: shard, Shards: 2, Part: "producer", Up: up})
		code, _ := get(p.Ready())
		return code
	}
	require.Equal(t, 200, tell("east", false))
	require.Equal(t, 200, tell("east", false), "another producer")
	require.Equal(t, 503, tell("west", false))
	require.Equal(t, 503, tell("east", true))
	require.Equal(t, 200, tell("east", true))
}

func TestAConsumerThatNothingMendsIsNotAlive(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	defer db.Close()
	p := chanqprobe.New()
	consume := func(queue string) *chanq.Consumer[string] {
		require.NoError(t, chanq.Migrate(t.Context(), db, queue, chanq.Config{}))
		q, err := chanq.Open[string](t.Context(), db, queue, chanq.Config{Hooks: p.Hooks()})
		require.NoError(t, err)
		c, err := q.Consume(t.Context(), chanq.ConsumerConfig{})
		require.NoError(t, err)
		p.Add(queue, c)
		return c
	}
	stops, breaks := consume("stops"), consume("breaks")
	defer func() {
		require.NoError(t, breaks.Shutdown(t.Context()))
		require.NoError(t, stops.Shutdown(t.Context()))
	}()
	code, _ := get(p.Live())
	require.Equal(t, 200, code)
	stops.Stop()
	code, body := get(p.Ready())
	require.Equal(t, 503, code)
	require.Equal(t, "stops is stopping or has ended\n", body)
	code, _ = get(p.Live())
	require.Equal(t, 200, code, "it was told to")

	_, err = db.ExecContext(t.Context(), "DROP TABLE chanq_breaks")
	require.NoError(t, err)
	<-breaks.Done()
	require.Eventually(t, func() bool { code, body = get(p.Live()); return code == 500 }, 10*time.Second, time.Millisecond)
	require.Contains(t, body, "breaks has ended: chanq: ")
	require.Contains(t, body, "chanq migrate breaks")
}
