package chanq_test

import (
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	seen := map[chanq.ID]bool{}
	for _, id := range made {
		require.False(t, seen[id], "made twice")
		seen[id] = true
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
					return db.QueryRowContext(t.Context(), "SELECT "+columns+" FROM "+table+" WHERE id = $1", arg).Scan(into...)
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
	for _, src := range []any{"x", "", []byte{}, make([]byte, 15), []byte(id.String()[1:]), int64(7), 1.5, true, time.Now()} {
		got := id
		err := got.Scan(src)
		requireWords(t, err, "chanq: id")
		require.Equal(t, id, got)
	}
	var got chanq.ID
	require.NoError(t, got.Scan([]byte(id.String())))
	require.Equal(t, id, got)
}
