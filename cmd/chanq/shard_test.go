package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/embedded"
)

func TestShardsAreMigratedAndOperatedOneByOne(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")}
	var reported struct{ Shard chanq.ShardMark }
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "migrate", "--db", files[0], "-o", "json", "--shard", "0/2", "mail").out), &reported))
	require.Equal(t, chanq.ShardMark{Count: 2, Set: reported.Shard.Set}, reported.Shard)
	require.Equal(t, exitFailed, runIn(t.Context(), "", "migrate", "--db", files[1], "--shard", "1/2", "mail").status, "of which set?")
	set := reported.Shard.Set.String()
	require.Contains(t, succeed(t, "", "migrate", "--db", files[1], "--shard", "1/2", "--set", set, "mail").out, "is shard 1 of 2, of the set "+set)
	require.Contains(t, succeed(t, "", "migrate", "--db", files[1], "mail").out, "is shard 1 of 2", "it remembers")
	require.Equal(t, exitFailed, runIn(t.Context(), "", "migrate", "--db", files[1], "--shard", "0/2", "mail").status)

	var shards []chanqshards.Shard
	for _, file := range files {
		db, err := embedded.Open(file)
		require.NoError(t, err)
		defer db.Close()
		shards = append(shards, chanqshards.Shard{DB: db})
	}
	_, err := chanqshards.Open[string](t.Context(), shards, "mail", chanq.Config{})
	require.NoError(t, err)
	succeed(t, "", "send", "--db", files[1], "mail", "hello")
	require.Contains(t, succeed(t, "", "stats", "--db", files[1], "mail").out, "1")
}

func TestTheSchemaOfAShardIsPrinted(t *testing.T) {
	set := chanq.NewID()
	out := succeed(t, "", "schema", "--dialect", "postgres", "--shard", "1/3", "--set", set.String(), "mail").out
	require.Contains(t, out, "1, 3, '")
	require.Equal(t, exitFailed, runIn(t.Context(), "", "schema", "--dialect", "postgres", "--shard", "1/3", "mail").status)
}

func TestFlagsOfShardsAreChecked(t *testing.T) {
	for _, flags := range [][]string{{"--set", chanq.NewID().String()}, {"--shard", "3/3"}, {"--shard", "-1/3"}, {"--shard", "1"}, {"--shard", "a/b"}, {"--shard", "0/257"}, {"--shard", "0/2", "--set", "x"}} {
		db := filepath.Join(t.TempDir(), "queue.db")
		require.Equal(t, exitUsage, runIn(t.Context(), "", append([]string{"migrate", "--db", db, "mail"}, flags...)...).status, "%v", flags)
	}
}

func TestShardsAreShownTogether(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")}
	var reported struct{ Shard chanq.ShardMark }
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "migrate", "--db", files[0], "-o", "json", "--ordered", "--shard", "0/2", "mail").out), &reported))
	succeed(t, "", "migrate", "--db", files[1], "--ordered", "--shard", "1/2", "--set", reported.Shard.Set.String(), "mail")
	shards := []string{"0/2", "1/2"}
	for i, file := range files {
		succeed(t, "", "send", "--db", file, "mail", strings.Repeat("x", i+1))
	}
	both := []string{"--db", files[0], "--shard-db", files[1]}
	for _, command := range [][]string{{"stats"}, {"stats", "--slots"}, {"top", "-n", "1"}} {
		text := succeed(t, "", append(command, both...)...).out
		for _, shard := range shards {
			require.Contains(t, text, "mail "+shard, command)
		}
		var lines []struct{ Queue, Shard string }
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "", append(append(command, "-o", "json"), both...)...).out), &lines))
		require.Equal(t, []string{"0/2", "1/2"}, []string{lines[0].Shard, lines[1].Shard}, command)
	}
	require.Contains(t, succeed(t, "", "consumers", "--db", files[0], "--shard-db", files[1]).out, "QUEUE")
	missing := filepath.Join(dir, "none.db")
	for _, command := range []string{"stats", "consumers"} {
		some := runIn(t.Context(), "", command, "--db", missing, "--shard-db", files[1])
		require.Equal(t, exitFailed, some.status)
		require.Contains(t, some.err, "none.db does not exist")
		require.Contains(t, some.out, "QUEUE", "the others are shown")
	}
	require.Contains(t, runIn(t.Context(), "", "stats", "--db", missing, "--shard-db", files[1]).out, "mail 1/2")
	secret := runIn(t.Context(), "", "stats", "--db", files[0], "--shard-db", "sqlserver://sa:S3CRET@127.0.0.1:1?dial+timeout=1")
	require.Equal(t, exitFailed, secret.status)
	require.NotContains(t, secret.err, "S3CRET")
}
