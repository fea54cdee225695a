package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// statementKinds names the statements of an idle consumer, by their texts.
func statementKinds(s *store, places []place) map[string]string {
	kinds := map[string]string{}
	for _, p := range places {
		q := s.dialect.Queue(p.names())
		for kind, st := range map[string]sqlbatch.Statement{
			"claim": q.Claim(sqlbatch.ClaimParams{Rows: 1}), "look": q.NextDue(sqlbatch.Heads{}), "rescan": q.Rescan(),
			"heartbeat": q.Join(sqlbatch.Consumer{}), "leave": q.Leave([16]byte{}), "history": q.Sample(sqlbatch.Sample{Sent: 1}),
			"counted": q.Sample(sqlbatch.Sample{}), "stats": q.Stats(1), "thin": q.Thin(), "vacuum": q.Bloat(), "open": q.Version(),
		} {
			kinds[st.Text] = kind
		}
		if p.Slots > 0 {
			kinds[q.Slots().Text], kinds[q.TakeSlots([16]byte{}, 0, nil).Text], kinds[q.GiveSlots([16]byte{}, nil).Text] = "slots", "take", "give"
			kinds[q.Read(sqlbatch.ReadParams{}).Text] = "read"
			kinds[q.Refill(sqlbatch.ReadParams{}).Text], kinds[q.Fetch([16]byte{}, nil, nil).Text] = "refill", "fetch"
			kinds[q.LookOrdered([16]byte{}, nil, nil).Text], kinds[q.HeldKeys(nil, nil).Text] = "look", "held"
			kinds[q.MarkOrdered([16]byte{}, nil).Text], kinds[q.ReleaseOrdered([16]byte{}, nil, false).Text], kinds[q.Reach(0, 1).Text] = "mark", "release", "reach"
		}
	}
	return kinds
}

func kindOfStatement(kinds map[string]string, text string) string {
	if kind := kinds[text]; kind != "" {
		return kind
	}
	for _, notifier := range []string{"pg_try_advisory_lock", "pg_notify", "LISTEN", "pg_advisory", "idle_session_timeout"} {
		if strings.Contains(text, notifier) {
			return "notify"
		}
	}
	switch text {
	case "-- ping", ";", "select 1":
		return "ping"
	}
	return "other"
}

// connects returns the number of connections to the database since its statistics began, on
// PostgreSQL 14 and later.
func (s *store) connects(ctx context.Context) (n int64) {
	_ = s.db.QueryRowContext(ctx, "SELECT sessions FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n
}

// serverProcesses are the processes of a PostgreSQL on this machine. The zero value has none.
type serverProcesses struct{ postmaster string }

// findServer finds these processes if the role and this process have the permissions.
func findServer(ctx context.Context, s *store) serverProcesses {
	var dir string
	if s.db.QueryRowContext(ctx, "SHOW data_directory").Scan(&dir) != nil {
		return serverProcesses{}
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return serverProcesses{}
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	return serverProcesses{pid}
}

// stat returns /proc/PID/stat from the state on, field 3 of its manual page.
func stat(pid string) []string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(rest); len(fields) > 20 {
		return fields
	}
	return nil
}

// children returns its running processes.
func (p serverProcesses) children() (pids []string) {
	if p.postmaster == "" {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if fields := stat(filepath.Base(dir)); fields != nil && fields[1] == p.postmaster {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

// cpuTime returns the CPU time of all of them, including those that have ended, or 0 if unknown.
func (p serverProcesses) cpuTime() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	ticks := func(fields []string, of ...int) (n int64) {
		for _, i := range of {
			one, _ := strconv.ParseInt(fields[i], 10, 64)
			n += one
		}
		return n
	}
	for {
		own := stat(p.postmaster)
		if own == nil {
			return 0
		}
		sum := ticks(own, 11, 12, 13, 14) // its own, and that of children that have ended
		for _, pid := range p.children() {
			if fields := stat(pid); fields != nil {
				sum += ticks(fields, 11, 12)
			}
		}
		// A child that has ended since own was read is in neither.
		if again := stat(p.postmaster); again != nil && slices.Equal(own[13:15], again[13:15]) {
			return time.Duration(sum) * tick
		}
	}
}

// memory returns their memory, with shared memory counted in parts, and their number.
func (p serverProcesses) memory() (bytes int64, processes int) {
	for _, pid := range p.children() {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		if err != nil {
			continue
		}
		processes++
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kB, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
				bytes += kB << 10
			}
		}
	}
	return bytes, processes
}
