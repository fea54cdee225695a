package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestMain(m *testing.M) {
	child.Main(parts)
	testdb.Together(4) // they mostly wait
	goleak.VerifyTestMain(m)
}

// at creates databases, and returns where they are.
func at(t *testing.T, all ...testdb.Engine) (places []testdb.Place) {
	t.Helper()
	for _, e := range all {
		places = append(places, testdb.Place{Engine: e.Name, Address: e.Create(t)})
	}
	return places
}

// blows runs a storm on any of the databases. CHANQ_CHAOS_SEED repeats its choices, and CHANQ_CHAOS_KILLS makes it
// longer.
func blows(t *testing.T, name string, change func(*storm), places ...testdb.Place) {
	if testing.Short() {
		t.Skip("SKIPPED: -short kills no process")
	}
	s, err := stormOf(name)
	require.NoError(t, err)
	s.At = places
	s.Kills = min(s.Kills, testdb.Of(8, 100))
	if change != nil {
		change(&s)
	}
	s.Seed = setting(t, "CHANQ_CHAOS_SEED", s.Seed)
	if s.Kills > 0 {
		s.Kills = int(setting(t, "CHANQ_CHAOS_KILLS", uint64(s.Kills)))
	}
	t.Logf("CHANQ_CHAOS_SEED=%d CHANQ_CHAOS_KILLS=%d", s.Seed, s.Kills)
	h, v, err := s.blow(t.Context(), t.Output())
	require.NoError(t, err)
	kills, _ := h.Totals(0)
	// A storm without a fault of a working process would prove nothing.
	require.GreaterOrEqual(t, kills.Kills, s.Kills)
	switch {
	case s.Ordered:
		require.Positive(t, v.Duplicates.Total())
	case s.Kills >= 50:
		require.Positive(t, v.Duplicates.Killed, "no killed process held a lease")
		require.Positive(t, v.Unseen, "no killed process had leases in its buffer")
	case s.Guilty > 0:
		deadly, _ := h.LostInARow()
		require.Positive(t, deadly)
	}
}

// setting returns a number that an environment variable can set, to repeat a run or to make it longer.
func setting(t *testing.T, variable string, standard uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

func TestKilledProcessesBreakNoGuarantee(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]testdb.Engine{
		"SQLite": testdb.SQLite, "SQLServerEmulator": testdb.EmulatorSocket,
		"Citus": testdb.Citus, "CitusThroughAnotherNode": testdb.CitusElsewhere, "CitusThroughTheNodeOfTheSchema": testdb.CitusHolder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if e.Name == testdb.EmulatorSocket.Name {
				testdb.Long(t)
			}
			blows(t, "kills", nil, at(t, e)...)
		})
	}
	// Only this server is crashed: other tests use the others. A separate one with all settings for durable commits, which crashes.
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		c := pgtest.StartCluster(t, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
		blows(t, "kills", func(s *storm) {
			s.Crash = func() error {
				if err := c.Crash(); err != nil {
					return err
				}
				return c.Resume()
			}
		}, testdb.Place{Engine: "postgres", Address: c.DSN()})
	})
}

func TestOnlyDeadlyMessagesOfKilledProcessesAreDead(t *testing.T) {
	testdb.Long(t)
	t.Parallel()
	for name, create := range map[string]func(*testing.T) testdb.Place{
		"SQLite": func(t *testing.T) testdb.Place { return at(t, testdb.SQLite)[0] },
		"PostgreSQL": func(t *testing.T) testdb.Place {
			return testdb.Place{Engine: "postgres", Address: pgtest.StartCluster(t).DSN()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blows(t, "guilty", nil, create(t))
		})
	}
}

func TestOrderSurvivesKilledProcesses(t *testing.T) {
	t.Parallel()
	for name, all := range map[string][]testdb.Engine{
		"SQLite": {testdb.SQLite}, "PostgreSQL": {testdb.Postgres},
		"SQLServerEmulator": {testdb.EmulatorSocket}, "SQLServerEmulatorWithRowVersions": {testdb.EmulatorSocketVersions},
		"shards": {testdb.SQLite, testdb.EmulatorSocket, testdb.SQLite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if all[0].Name != testdb.SQLite.Name || len(all) > 1 {
				testdb.Long(t)
			}
			blows(t, "keys", func(s *storm) { s.Kills = testdb.Of(2, 8) }, at(t, all...)...)
		})
	}
}

func TestAShortSoakBreaksNoGuarantee(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]testdb.Engine{"SQLite": testdb.SQLite, "PostgreSQL": testdb.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Long(t)
			p := at(t, e)[0]
			var out strings.Builder
			err := command(t.Context(), []string{"-storm", "soak", "-at", p.Engine + "=" + p.Address, "-for", "8s",
				"-rate", "200", "-kill-every", "1s",
				"-lock-every", "500ms", "-freeze-every", "1s", "-workers", "3",
				"-faults", "0.01", "-guilty", "0.01"}, &out, io.Discard)
			t.Log(out.String())
			require.NoError(t, err)
			require.Contains(t, out.String(), "0 lost, 0 delivered after a confirmed end, 0 out of order, 0 unexplained")
		})
	}
}

func TestAQueueThatIsThereIsLeftAlone(t *testing.T) {
	s, err := stormOf("kills")
	require.NoError(t, err)
	s.At = []testdb.Place{{Engine: "sqlite", Address: filepath.Join(t.TempDir(), "queue.db")}}
	db, err := s.At[0].Open()
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, chanq.Migrate(t.Context(), db, queueName, s.config()))
	for range 2 {
		_, _, err = s.blow(t.Context(), io.Discard)
		require.ErrorContains(t, err, "the database has a queue")
	}
}

func TestInvalidFlagsAreReported(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown storm":            {"-storm", "x"},
		"engine \"oracle\"":        {"-at", "oracle=x"},
		"postgres needs":           {"-at", "postgres"},
		"only an ordered":          {"-at", "sqlite=a", "-at", "sqlite=b"},
		"-for is 0s":               {"-for", "0"},
		"-rate is 0":               {"-rate", "0"},
		"-workers is 0":            {"-workers", "0"},
		"-spared is -1":            {"-spared", "-1"},
		"is 1, 0 of them spared":   {"-storm", "kills", "-workers", "1"},
		"is 2, 1 of them spared":   {"-workers", "2"},
		"an interval":              {"-kill-every", "-1s"},
		"-kills needs":             {"-kills", "1", "-kill-every", "0"},
		"are not frozen":           {"-storm", "keys", "-freeze-every", "1s"},
		"-faults is 2":             {"-faults", "2"},
		"-guilty is 2":             {"-guilty", "2"},
		"-guilty: sqlserver has n": {"-at", "sqlserver=x", "-guilty", "0.1"},
		"-body is -1":              {"-body", "-1"},
		"-lease is 1ms":            {"-lease", "1ms"},
		"unknown argument":         {"more"},
	} {
		require.ErrorContains(t, command(t.Context(), args, io.Discard, io.Discard), want)
	}
}

func TestOnlyUnknownOutcomesOfASendAreNotTold(t *testing.T) {
	ms := []chanq.Message[body]{{Body: newBody("a/1", 0)}, {Body: newBody("a/2", 0)}}
	receipts := []chanq.Receipt{{ID: chanq.ID{1}}, {ID: chanq.ID{2}}}
	unknown := &chanq.OpError{Op: "send", Unknown: true, Err: io.EOF}
	stored := func(n int) record.Event {
		return record.Event{Kind: record.Stored, Name: record.NameOf("a", n), ID: receipts[n-1].ID}
	}
	dropped := func(n int, err error) record.Event {
		return record.Event{Kind: record.Dropped, Name: record.NameOf("a", n), Error: err.Error()}
	}
	for _, c := range []struct {
		err  error
		want []record.Event
	}{
		{nil, []record.Event{stored(1), stored(2)}},
		{unknown, nil},
		{io.EOF, []record.Event{dropped(1, io.EOF), dropped(2, io.EOF)}},
		{&chanq.BatchError{Op: "send", Errs: []error{nil, io.EOF}}, []record.Event{stored(1), dropped(2, io.EOF)}},
		{&chanq.BatchError{Op: "send", Errs: []error{unknown, nil}}, []record.Event{stored(2)}},
	} {
		require.Equal(t, c.want, answers(ms, receipts, c.err), "%v", c.err)
	}
}

func TestTheFlagsOfAStormBeginWithItsValues(t *testing.T) {
	for _, s := range storms {
		_, err := parse([]string{"-storm", s.Name}, io.Discard)
		require.NoError(t, err)
	}
	s, err := parse([]string{"-rate", "7", "--storm=keys"}, io.Discard)
	require.NoError(t, err)
	require.True(t, s.Ordered)
	require.Equal(t, []any{7, 8, 100, 1500 * time.Millisecond}, []any{s.Rate, s.Workers, s.Kills, s.LeaseFor})
}
