package main

import (
	"bytes"
	"database/sql"
	"errors"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

const root = "../.."

// fromREADME returns the first block of README.
func fromREADME(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "\n```")
	require.True(t, found)
	block, _, found = strings.Cut(block, "\n```")
	require.True(t, found)
	program, isGo := strings.CutPrefix(block, "go\n")
	require.True(t, isGo, "the first block is %q", block)
	return program + "\n"
}

func TestTheFirstBlockOfREADMEIsAShortProgramOverChannels(t *testing.T) {
	program := fromREADME(t)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Equal(t, string(source), program)
	formatted, err := format.Source([]byte(program))
	require.NoError(t, err)
	require.Equal(t, string(formatted), program)
	require.LessOrEqual(t, strings.Count(program, "\n"), 40)
	require.Contains(t, program, "producer.C() <- ")
	require.Contains(t, program, "for lease := range consumer.C() {")
}

// The program of README is built in a folder of its own, as a new user does, which needs the network or a module cache that has its
// modules. It is run twice. Then it is killed while its first order waits to be printed.
func TestTheFirstProgramKeepsItsMessagesWhenItIsKilled(t *testing.T) {
	testdb.Long(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(fromREADME(t)), 0o600))
	tree, err := filepath.Abs(root)
	require.NoError(t, err)
	command := func(args ...string) {
		for tries := 1; ; tries++ { // the network may fail for a moment
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
			if out, err := cmd.CombinedOutput(); err == nil || tries == 3 {
				require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
				return
			}
		}
	}
	command("mod", "init", "example.com/shop")
	command("mod", "edit", "-go=1.25.0", "-replace=github.com/chanq/chanq="+tree)
	command("mod", "tidy")
	command("build", "-o", "shop.exe", ".")
	program := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "shop.exe"))
		cmd.Dir = dir
		return cmd
	}
	prints := func(want ...string) {
		out, err := program().CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.ElementsMatch(t, want, strings.Split(strings.TrimSpace(string(out)), "\n"))
	}
	prints("order: tea", "order: cake")
	prints("order: tea", "order: cake")

	db, err := embedded.Open(filepath.Join(dir, "shop.db"))
	require.NoError(t, err)
	defer db.Close()
	orders, err := chanqadmin.Open(t.Context(), db, "orders", chanq.Config{})
	require.NoError(t, err)
	killWhileItPrints(t, program(), func() bool {
		stats, err := orders.Stats(t.Context())
		return err == nil && stats.Leased == 2
	})
	stats, err := orders.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, stats.Leased)
	expire(t, db)
	prints("order: tea", "order: cake", "order: tea", "order: cake")
}

// killWhileItPrints runs a program whose standard output has no room, and kills it when it has reached the state.
func killWhileItPrints(t *testing.T, cmd *exec.Cmd, reached func() bool) {
	out, full, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	require.NoError(t, full.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = full.Write(bytes.Repeat([]byte("."), 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the pipe has room")
	cmd.Stdout = full
	require.NoError(t, cmd.Start())
	require.NoError(t, full.Close())
	require.Eventually(t, reached, testdb.Patience, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	var killed *exec.ExitError
	require.True(t, errors.As(cmd.Wait(), &killed))
}

// expire makes it a minute later for all leases.
func expire(t *testing.T, db *sql.DB) {
	_, err := db.ExecContext(t.Context(), "UPDATE chanq_orders SET lease_until = lease_until - 60000")
	require.NoError(t, err)
}
