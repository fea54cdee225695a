package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqcron"
)

// ensured stores schedules of the queue mail.
func ensured(t *testing.T, db string, names ...string) {
	t.Helper()
	succeed(t, "", "schedule", "migrate", "--db", db)
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	q, err := chanq.Open[string](t.Context(), c.DB, "mail", chanq.Config{})
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, chanqcron.New(c.DB, q).Ensure(t.Context(), chanqcron.Schedule[string]{
			Name: name, Line: "30 2 * * mon-fri", Zone: "Europe/Berlin", Message: chanq.Message[string]{Body: "report of " + name, Type: "report"},
		}))
	}
}

func TestSchedulesAreListedPausedRunAndRemoved(t *testing.T) {
	db := newQueue(t, "mail")
	require.Contains(t, fail(t, exitFailed, "schedule", "list", "--db", db), "no schema of version 1 (found 0); run chanqcron.Migrate, or the command: chanq schedule migrate")
	require.Equal(t, "the tables of schedules are up to date\n", succeed(t, "", "schedule", "migrate", "--db", db).out)
	require.Equal(t, "[]\n", succeed(t, "", "schedule", "list", "--db", db, "-o", "json").out)
	ensured(t, db, "nightly", "we\u00fcrd")

	lines := succeed(t, "", "schedule", "list", "--db", db).lines()
	require.Len(t, lines, 3)
	require.Regexp(t, `^nightly +mail +30 2 \* \* mon-fri +Europe/Berlin +20\d\d-\d\d-\d\dT0[01]:30:00\.000Z +- +20`, lines[1])

	require.Equal(t, "schedule nightly paused\n", succeed(t, "", "schedule", "pause", "--db", db, "--reason", "it is printed", "nightly").out)
	require.Contains(t, succeed(t, "", "schedule", "list", "--db", db).lines()[1], `paused by `+actor()+": it is printed")
	var list []scheduleLine
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "schedule", "list", "--db", db, "-o", "json").out), &list))
	require.Equal(t, "report", list[0].Type)
	require.WithinDuration(t, time.Now(), *list[0].Paused, time.Minute)
	require.Nil(t, list[1].Paused)
	require.Equal(t, "schedule nightly resumed\n", succeed(t, "", "schedule", "resume", "--db", db, "nightly").out)

	id := succeed(t, "", "schedule", "run", "--db", db, "nightly").lines()[0]
	require.Equal(t, id+" is still in the queue: nothing is sent\n", succeed(t, "", "schedule", "run", "--db", db, "nightly").out)
	require.Equal(t, "report of nightly\n", succeed(t, "", "receive", "--db", db, "mail").out)

	require.Equal(t, []string{"schedule nightly removed", "schedule we\u00fcrd removed"}, succeed(t, "", "schedule", "remove", "--db", db, "nightly", "we\u00fcrd").lines())
	log := succeed(t, "", "log", "--db", db, "mail").lines()
	require.Len(t, log, 1+6, "with those that did not send")
	require.Regexp(t, `pause schedule +nightly +0 +it is printed`, log[6])
	require.Contains(t, fail(t, exitFailed, "schedule", "run", "--db", db, "nightly"), `chanq: send schedule "nightly": no such schedule`)
	require.Contains(t, fail(t, exitUsage, "schedule", "pause", "--db", db), "schedule pause: give one schedule or more")
}
