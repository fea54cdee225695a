package chanq_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

func TestIDsRiseAndKeepTheirTime(t *testing.T) {
	var mu sync.Mutex
	var made []chanq.ID
	var makers sync.WaitGroup
	before := time.Now().Truncate(time.Millisecond)
	for range 4 {
		makers.Go(func() {
			mine := make([]chanq.ID, 500)
			for i := range mine {
				mine[i] = chanq.NewID()
			}
			rises := func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) }
			if !slices.IsSortedFunc(mine, rises) {
				t.Error("an ID is not greater than the one before")
			}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, mine...)
		})
	}
	makers.Wait()
	seen := map[[8]byte]bool{}
	for _, id := range made {
		random := [8]byte(id[8:])
		require.False(t, seen[random], "random bytes are used twice")
		seen[random] = true
		require.Equal(t, uuid.Version(7), uuid.UUID(id).Version())
		require.Equal(t, uuid.RFC4122, uuid.UUID(id).Variant())
		require.WithinRange(t, id.Time(), before, time.Now().Add(time.Second))
		require.False(t, id.IsZero())
	}
	require.True(t, chanq.ID{}.IsZero())
}

func TestIDsAreReadAsTheyAreWritten(t *testing.T) {
	id := chanq.NewID()
	require.Len(t, id.String(), 36)
	parsed, err := chanq.ParseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	text, err := json.Marshal(map[string]chanq.ID{"id": id})
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "`+id.String()+`"}`, string(text))
	var read map[string]chanq.ID
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, id, read["id"])
	for _, bad := range []string{"", "x", id.String()[1:], id.String() + "0"} {
		_, err := chanq.ParseID(bad)
		requireWords(t, err, "id")
		require.Error(t, new(chanq.ID).UnmarshalText([]byte(bad)))
	}
}

func TestIDsAreArgumentsAndColumnsOfADatabase(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.Memory, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			connector, err := e.Connect(e.Create(t))
			require.NoError(t, err)
			db := sql.OpenDB(connector)
			defer db.Close()
			exec := func(text string, args ...any) {
				t.Helper()
				_, err := db.ExecContext(t.Context(), text, args...)
				require.NoError(t, err)
			}
			id := chanq.NewID()
			forms := map[string]any{"TEXT": id, "VARCHAR(36)": id, "BLOB": id[:]}
			if e.Name == testdb.Postgres.Name {
				forms = map[string]any{"TEXT": id, "UUID": id, "BYTEA": id[:]}
			}
			for form, arg := range forms {
				table := "ids_" + strings.ToLower(strings.Trim(form, "(36)"))
				exec("CREATE TABLE " + table + " (id " + form + ", other " + form + ")")
				exec("INSERT INTO "+table+" (id) VALUES ($1)", arg)
				read := func(columns string, into ...any) error {
					return db.QueryRowContext(t.Context(), "SELECT "+columns+" FROM "+table+" WHERE id = $1",
						arg).Scan(into...)
				}
				var got chanq.ID
				var other sql.Null[chanq.ID]
				require.NoError(t, read("id, other", &got, &other), form)
				require.Equal(t, id, got, form)
				require.False(t, other.Valid)
				require.NoError(t, read("id", &other), form)
				require.Equal(t, sql.Null[chanq.ID]{V: id, Valid: true}, other)
				require.ErrorContains(t, read("other", &got), "the column is NULL, use a sql.Null[chanq.ID]")
				require.Equal(t, id, got, "it is unchanged")
			}
		})
	}
}

func TestIDsRefuseWhatIsNone(t *testing.T) {
	id := chanq.NewID()
	for _, src := range []any{"x", "", []byte{}, make([]byte, 15), []byte(id.String()[1:]), int64(7), 1.5, true,
		time.Now()} {
		got := id
		err := got.Scan(src)
		requireWords(t, err, "chanq: id")
		require.Equal(t, id, got)
	}
	var got chanq.ID
	require.NoError(t, got.Scan([]byte(id.String())))
	require.Equal(t, id, got)
}

func TestAWrongMessageIsRefusedByItsField(t *testing.T) {
	// No sample runs a statement
	faults, _, q := opened(t, chanq.Config{Spec: chanq.Spec{MaxBody: 100}, History: chanq.HistoryOff})
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	defer p.Close(t.Context())
	before := faults.Ops()
	var wrong []chanq.Message[string]
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("x", i)] = ""
	}
	for _, c := range []struct {
		words    string
		m        chanq.Message[string]
		tooLarge bool
	}{
		{"Message.Priority is 3: must be from PriorityLow (-1) to PriorityUrgent (2)",
			chanq.Message[string]{Priority: 3}, false},
		{"Message.Priority is -2", chanq.Message[string]{Priority: -2}, false},
		{"Message.Delay is -1ns: must be from 0", chanq.Message[string]{Delay: -1}, false},
		{"Message.Delay", chanq.Message[string]{Delay: math.MaxInt64}, false},
		{"Message.DedupKey is 201 bytes: must be at most 200",
			chanq.Message[string]{DedupKey: strings.Repeat("k", 201)}, true},
		{"Message.DedupKey", chanq.Message[string]{DedupKey: "a\x00"}, false},
		{"Message.DedupKey", chanq.Message[string]{DedupKey: "\xc3"}, false},
		{"Message.OnDuplicate is OnDuplicate(4): must be KeepFirst, KeepQueued, Replace or Debounce",
			chanq.Message[string]{DedupKey: "k", OnDuplicate: 4}, false},
		{"Message.OnDuplicate is keep-queued: must be unset, since Message.DedupKey is empty",
			chanq.Message[string]{OnDuplicate: chanq.KeepQueued}, false},
		{"Message.DebounceMax is 1s: must be 0, since Message.OnDuplicate is replace",
			chanq.Message[string]{DedupKey: "k", OnDuplicate: chanq.Replace, DebounceMax: time.Second}, false},
		{"Message.DebounceMax is 1s: must be 0, since Message.OnDuplicate is keep-first",
			chanq.Message[string]{DebounceMax: time.Second}, false},
		{"Message.Delay is 0: must be above 0, since Message.OnDuplicate is debounce",
			chanq.Message[string]{DedupKey: "k", OnDuplicate: chanq.Debounce, DebounceMax: time.Second}, false},
		{"Message.DebounceMax is 1s: must be from Message.Delay, which is 2s, to", chanq.Message[string]{DedupKey: "k",
			OnDuplicate: chanq.Debounce, Delay: 2 * time.Second, DebounceMax: time.Second}, false},
		{"Message.DebounceMax is -1ns", chanq.Message[string]{DedupKey: "k",
			OnDuplicate: chanq.Debounce, Delay: time.Second, DebounceMax: -1}, false},
		{"Message.DebounceMax", chanq.Message[string]{DedupKey: "k",
			OnDuplicate: chanq.Debounce, Delay: time.Second, DebounceMax: math.MaxInt64}, false},
		{"Message.Type is 101 bytes: must be at most 100", chanq.Message[string]{Type: strings.Repeat("t", 101)}, true},
		{"Message.Type is \"a\\tb\": must be printable ASCII", chanq.Message[string]{Type: "a\tb"}, false},
		{"Message.Type", chanq.Message[string]{Type: "ü"}, false},
		{"Message.Type", chanq.Message[string]{Type: "\x7f"}, false},
		{"Message.Headers", chanq.Message[string]{Headers: many}, true},
		{"Message.Headers", chanq.Message[string]{Headers: map[string]string{"k": strings.Repeat("v", 16<<10)}}, true},
		{"Message.Body is 101 bytes: must be at most Spec.MaxBody, which is 100",
			chanq.Message[string]{Body: strings.Repeat("b", 101)}, true},
	} {
		r, err := p.Send(t.Context(), c.m)
		requireWords(t, err, "send orders", c.words)
		require.Equal(t, c.tooLarge, errors.Is(err, chanq.ErrTooLarge), c.words)
		require.False(t, r.ID.IsZero(), "there is always an ID")
		wrong = append(wrong, c.m)
	}
	require.Equal(t, before, faults.Ops())
	_, err = p.SendBatch(t.Context(), append(wrong, chanq.Msg("good"))...)
	var batch *chanq.BatchError
	require.ErrorAs(t, err, &batch)
	require.NoError(t, batch.Errs[len(wrong)], "it does not fail for the others")
	require.NotContains(t, batch.Errs[:len(wrong)], nil)
	require.Equal(t, 1, testdb.Counted(t, q).Ready)

	_, err = p.Send(t.Context(), chanq.Message[string]{
		Body:     strings.Repeat("b", 100),
		DedupKey: strings.Repeat("k", 200),
		Type:     strings.Repeat(" ~", 50),
		Headers:  map[string]string{"k": strings.Repeat("v", 16<<10-8)},
		Priority: chanq.PriorityUrgent,
	})
	require.NoError(t, err, "the limits themselves are allowed")
	const longest = 100 * 365 * 24 * time.Hour
	for i, m := range []chanq.Message[string]{{Delay: longest}, {Delay: longest, DebounceMax: longest}} {
		m.DedupKey, m.OnDuplicate = strings.Repeat("d", i+1), chanq.Debounce
		for range 2 {
			_, err = p.Send(t.Context(), m)
			require.NoError(t, err)
		}
	}
}

func TestABodyThatCannotBeEncodedIsRefused(t *testing.T) {
	_, db, _ := opened(t, chanq.Config{})
	for _, cfg := range []chanq.Config{{}, {Codec: panics{}}} {
		q, err := chanq.Open[any](t.Context(), db, "orders", cfg)
		require.NoError(t, err)
		p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
		require.NoError(t, err)
		_, err = p.Send(t.Context(), chanq.Message[any]{Body: make(chan int)})
		requireWords(t, err, "Message.Body")
		p.C() <- chanq.Message[any]{Body: make(chan int)}
		var unsent *chanq.UnsentError[any]
		require.ErrorAs(t, p.Close(t.Context()), &unsent)
		require.Len(t, unsent.Unsent, 1)
	}
}

type panics struct{}

func (panics) Encode(any) ([]byte, error) { panic("encode") }
func (panics) Decode([]byte, any) error   { panic("decode") }

func TestPrioritiesAndStatesHaveNames(t *testing.T) {
	require.Equal(t, "low normal high urgent Priority(9)",
		strings.Join([]string{chanq.PriorityLow.String(), chanq.PriorityNormal.String(), chanq.PriorityHigh.String(),
			chanq.PriorityUrgent.String(), chanq.Priority(9).String()}, " "))
	require.Equal(t, chanq.PriorityNormal, chanq.Priority(0))
}
