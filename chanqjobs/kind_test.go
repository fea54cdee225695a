package chanqjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

func TestAWrongNameOfAKindPanics(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", 101), "größe", "a\nb", "a\x00", "\x7f"} {
		require.PanicsWithValue(t, fmt.Sprintf("chanqjobs: the name of a kind is %q: must be 1 to 100 printable ASCII characters", name),
			func() { chanqjobs.Define[int](name) })
	}
	for _, name := range []string{"x", strings.Repeat("x", 100), "invoice.v2", "a b~"} {
		require.Equal(t, name, chanqjobs.Define[int](name).Name())
	}
}

// received returns a lease as a consumer delivers it.
func received(t testing.TB, kind string, body string) *chanq.Lease[chanqjobs.Job] {
	l := &chanq.Lease[chanqjobs.Job]{Delivery: chanq.Delivery{Type: kind, Attempt: 1}}
	require.NoError(t, chanqjobs.Codec(nil).Decode([]byte(body), &l.Body))
	return l
}

func TestAKindOpensItsOwnJobsOnly(t *testing.T) {
	l, err := welcome.Open(received(t, "welcome", `{"Order": 7, "To": "ada"}`))
	require.NoError(t, err)
	require.Equal(t, mail{7, "ada"}, l.Body)
	require.Equal(t, "welcome", l.Type)

	_, err = charge.Open(received(t, "welcome", `{}`))
	require.ErrorIs(t, err, chanqjobs.ErrKind)
	require.EqualError(t, err, `chanqjobs: job of another kind: "welcome" instead of "charge"`)
	require.Equal(t, chanq.OutcomeRetry, chanq.Outcome(err).Kind, "it is not the fault of the job")

	_, err = charge.Open(received(t, "charge", `"much"`))
	var wrong *json.UnmarshalTypeError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, chanq.CauseUndecodable, chanq.Outcome(err).Cause)

	_, err = charge.With(panics{}).Open(received(t, "charge", `1`))
	require.ErrorContains(t, err, "codec panicked: no")
	require.Equal(t, chanq.CauseUndecodable, chanq.Outcome(err).Cause)
}

type panics struct{ chanq.Codec }

func (panics) Decode([]byte, any) error { panic("no") }

// A queue of jobs that is opened without the codec would store {} for every job.
func TestAQueueOpenedWithoutTheCodecStoresNoJob(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := testdb.QueueOf[chanqjobs.Job](w, "jobs", chanq.Config{})
		_, err := q.Send(w.Soon(), charge.New(1))
		require.ErrorContains(w, err, "chanqjobs.Open")
		require.Error(w, json.Unmarshal([]byte(`{}`), &chanqjobs.Job{}))

		q = jobsOf(w, "jobs", chanq.Config{})
		_, err = q.Send(w.Soon(), chanq.Message[chanqjobs.Job]{Type: "charge"})
		require.ErrorContains(w, err, "Kind.New")
		require.True(w, testdb.Empty(w, q))
	})
}

// reversed is a codec that stores JSON backwards.
type reversed struct{}

func (reversed) Encode(body any) ([]byte, error) {
	data, err := chanq.JSON.Encode(body)
	return backwards(data), err
}

func (reversed) Decode(data []byte, body any) error { return chanq.JSON.Decode(backwards(data), body) }

func backwards(data []byte) []byte {
	out := make([]byte, len(data))
	for i, b := range data {
		out[len(data)-1-i] = b
	}
	return out
}

func TestBodiesAreStoredByTheirCodec(t *testing.T) {
	bytesOf, raw := chanqjobs.Define[[]byte]("bytes"), chanqjobs.Define[json.RawMessage]("raw")
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{Codec: reversed{}})
		given := []byte("\x00\xff")
		secret := welcome.With(chanq.JSON)
		ids := testdb.Send(w, q, welcome.New(mail{1, "ada"}), secret.New(mail{2, "bob"}), note.New("as it is"), bytesOf.New(given),
			raw.New(json.RawMessage(` [1] `)), raw.New(json.RawMessage(utf16Of(`[2]`))), bytesOf.New(nil))
		given[0] = 'x'
		stored := []string{string(backwards([]byte(`{"Order":1,"To":"ada"}`))), `{"Order":2,"To":"bob"}`, "as it is", "\x00\xff", " [1] ", utf16Of(`[2]`), ""}
		for i, id := range ids {
			require.Equal(w, stored[i], string(testdb.Get(w, q, id).Body), i)
		}

		open := map[chanq.ID]func(l *chanq.Lease[chanqjobs.Job]) (any, error){
			ids[0]: opener(welcome), ids[1]: opener(secret), ids[2]: opener(note), ids[3]: opener(bytesOf), ids[4]: opener(raw), ids[5]: opener(raw),
			ids[6]: opener(bytesOf),
		}
		want := map[chanq.ID]any{
			ids[0]: mail{1, "ada"}, ids[1]: mail{2, "bob"}, ids[2]: "as it is", ids[3]: []byte("\x00\xff"), ids[4]: json.RawMessage(" [1] "),
			ids[5]: json.RawMessage("[2]"), ids[6]: []byte{},
		}
		for _, l := range testdb.Lease(w, q, len(ids), time.Minute) {
			body, err := open[l.ID](l.Lease)
			require.NoError(w, err)
			require.Equal(w, fmt.Sprintf("%T %q", want[l.ID], want[l.ID]), fmt.Sprintf("%T %q", body, body))
			require.NoError(w, l.Ack())
		}
	})
}

func opener[T any](k *chanqjobs.Kind[T]) func(l *chanq.Lease[chanqjobs.Job]) (any, error) {
	return func(l *chanq.Lease[chanqjobs.Job]) (any, error) {
		opened, err := k.Open(l)
		if err != nil {
			return nil, err
		}
		return opened.Body, nil
	}
}

// utf16Of returns a text as SQL Server stores an nvarchar.
func utf16Of(text string) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(text)) {
		out = append(out, byte(u), byte(u>>8))
	}
	return string(out)
}

// Jobs of four kinds cost the statements of one message.
func TestOneStatementStoresJobsOfSeveralKinds(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q, plain := jobsOf(w, "jobs", chanq.Config{}), w.Queue("plain", chanq.Config{})
		tx, err := w.DB.BeginTx(w.Soon(), nil)
		require.NoError(w, err)
		defer tx.Rollback()
		statements := func(send func() error) (n int) {
			w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
				if op.Kind == faultdb.Exec || op.Kind == faultdb.Query {
					n++
				}
				return faultdb.Fault{}
			})
			require.NoError(w, send())
			w.Faults.Inject(nil)
			return n
		}
		one := statements(func() error {
			_, err := plain.SendTx(w.Soon(), tx, chanq.Msg("x"))
			return err
		})
		require.Equal(w, 2, one, "it reads the settings of the queue, and inserts")
		require.Equal(w, one, statements(func() error {
			_, err = q.SendTx(w.Soon(), tx, welcome.New(mail{1, "ada"}), charge.New(5), note.New("paid"), charge.New(6))
			return err
		}))
		require.NoError(w, tx.Commit())
		require.Equal(w, 4, testdb.Counted(w, q).Ready)

		_, err = q.Send(w.Soon(), charge.New(7), chanqjobs.Define[func()]("wrong").New(nil))
		require.ErrorContains(w, err, "Message.Body: json: unsupported type")
		require.Equal(w, 4, testdb.Counted(w, q).Ready, "nothing is stored")
	})
}

// Any receiver of a queue gets jobs, also one that knows no kind, and a job keeps its bytes when it is sent on.
func TestAReceivedJobIsSentOnUnchanged(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		in, out := jobsOf(w, "inbox", chanq.Config{}), jobsOf(w, "outbox", chanq.Config{Codec: reversed{}})
		plain := testdb.OpenOn[json.RawMessage](w, w.DB, "inbox", chanq.Config{})
		testdb.Send(w, plain, chanq.Message[json.RawMessage]{Type: "anything", Body: json.RawMessage(`{"a":  1}`)})
		c := testdb.Start(w, in, chanq.ConsumerConfig{StopWhenIdle: true})
		require.NoError(w, chanq.Pipe(c, out, 1, func(_ context.Context, l *chanq.Lease[chanqjobs.Job]) ([]chanq.Message[chanqjobs.Job], error) {
			require.Equal(w, `{"a":  1}`, string(l.Body.Bytes()))
			return []chanq.Message[chanqjobs.Job]{{Type: l.Type, Body: l.Body}}, nil
		}))
		page, err := testdb.Peek(w.Soon(), out, chanqadmin.StateReady, 10)
		require.NoError(w, err)
		require.Len(w, page, 1)
		require.Equal(w, `{"a":  1}`, string(page[0].Body))
		require.Equal(w, "anything", page[0].Type)
	})
}

func TestALoopOverLeasesSwitchesOnTheKind(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		ids := testdb.Send(w, q, charge.New(5), welcome.New(mail{1, "ada"}), chanq.Message[chanqjobs.Job]{Type: "charge", Body: note.New(`"x"`).Body})
		c := testdb.Start(w, q, chanq.ConsumerConfig{StopWhenIdle: true})
		got := map[string]any{}
		for l := range c.C() {
			body, err := opener(charge)(l)
			if errors.Is(err, chanqjobs.ErrKind) {
				body, err = opener(welcome)(l)
			}
			if err == nil {
				got[l.Type] = body
			}
			require.NoError(w, l.Settle(err))
		}
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Equal(w, map[string]any{"charge": 5, "welcome": mail{1, "ada"}}, got)
		require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
		require.Equal(w, chanq.CauseUndecodable, testdb.Get(w, q, ids[2]).Cause)
	})
}
