package main

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/prove/testdb"
)

var update = flag.Bool("update", false, "write testdata/locks.txt")

// engineFacts answers what the emulator cannot: each expression is of a request, and the answer is its only value.
var engineFacts = []struct {
	request *regexp.Regexp
	value   any
}{
	{regexp.MustCompile(`HAS_PERMS_BY_NAME`), int64(1)},
	{regexp.MustCompile(`SERVERPROPERTY\('Edition'\)`), "Developer Edition (64-bit)"},
	{regexp.MustCompile(`SERVERPROPERTY\('Collation'\)`), "SQL_Latin1_General_CP1_CI_AS"},
	{regexp.MustCompile(`dm_os_sys_info`), "2"},
	{regexp.MustCompile(`delayed_durability_desc`), "DISABLED"},
	{regexp.MustCompile(`recovery_model_desc`), "FULL"},
	{regexp.MustCompile(`IsOptimizedLockingOn`), "off"},
}

// emulated answers like a server on which everything is as chanq expects it, unless one of the functions answers first.
func emulated(t *testing.T, first ...func(instance.Request) (instance.Answer, bool)) *instance.Instance {
	plan := testdata(t, "plan.xml")
	var planning sync.Map // sessions in which SHOWPLAN_XML is on
	return instance.Start(t, func(r instance.Request) (instance.Answer, bool) {
		for _, f := range first {
			if a, ok := f(r); ok {
				return a, true
			}
		}
		if _, on := planning.Load(r.Session); on && r.Text != "SET SHOWPLAN_XML OFF" {
			return instance.Answer{Rows: [][]any{{plan}}}, true
		}
		for _, f := range engineFacts {
			if f.request.MatchString(r.Text) {
				return instance.Answer{Rows: [][]any{{f.value}}}, true
			}
		}
		switch {
		case strings.Contains(r.Text, "DATABASEPROPERTYEX(DB_NAME(), 'Collation')"):
			collation := "Latin1_General_100_BIN2"
			if strings.HasSuffix(r.Database, "_unversioned") {
				collation = "Turkish_100_CI_AS"
			}
			return instance.Answer{Rows: [][]any{{collation}}}, true
		case strings.Contains(r.Text, "dm_db_index_operational_stats"):
			return instance.Answer{Rows: [][]any{{int64(0), int64(0)}}}, true
		case r.Text == "SET SHOWPLAN_XML ON":
			planning.Store(r.Session, true)
			return instance.Answer{}, true
		case r.Text == "SET SHOWPLAN_XML OFF":
			planning.Delete(r.Session)
			return instance.Answer{}, true
		case r.Text == "EXEC sp_updatestats", strings.HasPrefix(r.Text, "DROP LOGIN "):
			return instance.Answer{}, true
		}
		return instance.Answer{}, false
	})
}

// answers returns a function that answers requests with a text.
func answers(pattern string, a instance.Answer) func(instance.Request) (instance.Answer, bool) {
	match := regexp.MustCompile(pattern)
	return func(r instance.Request) (instance.Answer, bool) { return a, match.MatchString(r.Text) }
}

// ask runs the command on a server, and returns its report and its error.
func ask(t *testing.T, i *instance.Instance, args ...string) (string, error) {
	t.Helper()
	var progress bytes.Buffer
	out := filepath.Join(t.TempDir(), "report.md")
	err := command(t.Context(), append([]string{"-dsn", i.DSN(), "-out", out, "-n", "200", "-quick"}, args...), &progress, &progress)
	require.Equal(t, []string{"master"}, i.Databases(), "the databases of the run are dropped")
	if t.Failed() || testing.Verbose() {
		t.Log(progress.String())
	}
	report, _ := os.ReadFile(out) // there is none if the run failed
	return squeeze(string(report)), err
}

// squeeze removes what aligns a table.
func squeeze(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

func TestAServerAsExpectedHasNoDifferences(t *testing.T) {
	report, err := ask(t, emulated(t), "-parts", "facts,plans,locks,behaviours")
	require.NoError(t, err, report)
	require.Contains(t, report, "**0 differences, 0 not asked. As expected in the parts that ran: facts, plans, locks, behaviours. Not run: suite, programs, load.**")
	require.NotContains(t, report, "Everything is")
	require.Contains(t, report, "**This server is mssqltest, the emulator of chanq: the result says nothing about Microsoft's engine.**")
	require.Regexp(t, `\| chanq \| commit \w+`, report)
	require.Regexp(t, `\| command \| firsthour -dsn=… -n=200 -out=\S+ -parts=facts,plans,locks,behaviours -quick=true \|`, report)
	require.Regexp(t, `\| round trip to the server \| \S+ \(median of 21\) \|`, report)
	require.Contains(t, report, "| unversioned: collation | Turkish_100_CI_AS | Turkish_100_CI_AS | as expected |")
	require.Contains(t, report, "texts with a plan as expected")
	require.Contains(t, report, "| versions: claim 3 of 4 |")
	require.NotContains(t, report, "DIFFERS")
}

// differs runs some parts on a server that differs in one answer, and returns the report.
func differs(t *testing.T, parts string, first ...func(instance.Request) (instance.Answer, bool)) string {
	t.Helper()
	report, err := ask(t, emulated(t, first...), "-parts", parts)
	require.ErrorIs(t, err, errDiffers, report)
	require.Contains(t, report, "DIFFERS")
	return report
}

func TestAnotherFactIsADifference(t *testing.T) {
	report := differs(t, "facts", answers("delayed_durability_desc", instance.Answer{Rows: [][]any{{"FORCED"}}}))
	require.Contains(t, report, "| ordered: DELAYED_DURABILITY | DISABLED | FORCED | **DIFFERS** |")
}

func TestNothingIsCreatedOnAServerThatCannotBeAsked(t *testing.T) {
	no := func(t *testing.T, wanted string, first ...func(instance.Request) (instance.Answer, bool)) {
		t.Helper()
		created := false
		_, err := ask(t, emulated(t, append(first, func(r instance.Request) (instance.Answer, bool) {
			created = created || strings.HasPrefix(r.Text, "CREATE ")
			return instance.Answer{}, false
		})...))
		require.ErrorContains(t, err, wanted)
		require.NotErrorIs(t, err, errDiffers)
		require.False(t, created)
	}
	t.Run("another product", func(t *testing.T) {
		no(t, "another product", answers("@@VERSION", instance.Answer{Rows: [][]any{{"Babelfish for PostgreSQL with SQL Server Compatibility - 12.0.2000.8", "12.0.2000.8"}}}))
	})
	t.Run("Azure SQL Database", func(t *testing.T) {
		no(t, "another product", answers("@@VERSION", instance.Answer{Rows: [][]any{{"Microsoft SQL Azure (RTM) - 12.0.2000.8", "12.0.2000.8"}}}))
	})
	t.Run("too old", func(t *testing.T) {
		no(t, "2016 SP1", answers("@@VERSION", instance.Answer{Rows: [][]any{{"Microsoft SQL Server 2016 (RTM) - 13.0.1601.5", "13.0.1601.5"}}}))
	})
	t.Run("few rights", func(t *testing.T) {
		no(t, `the login "sa" must be able to create databases: use sa, or GRANT it CREATE ANY DATABASE, VIEW SERVER STATE`, answers("HAS_PERMS_BY_NAME", instance.Answer{Rows: [][]any{{int64(0)}}}))
	})
	t.Run("a database of that name", func(t *testing.T) {
		no(t, "chanq_firsthour_unversioned exists", answers("SELECT name FROM sys.databases", instance.Answer{Rows: [][]any{{"master"}, {"chanq_firsthour_unversioned"}}}))
	})
	t.Run("a wrong password", func(t *testing.T) {
		i := emulated(t)
		dsn := strings.Replace(i.DSN(), "emulator-password", "other", 1)
		require.ErrorContains(t, attempt(t, dsn), `cannot log in to the database "master" as "sa": the password is wrong, or the database does not exist`)
	})
}

// attempt runs the command on an address, for at most as long as a dead one may cost.
func attempt(t *testing.T, dsn string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := command(ctx, []string{"-dsn", dsn, "-out", filepath.Join(t.TempDir(), "report.md")}, &bytes.Buffer{}, &bytes.Buffer{})
	require.NoError(t, ctx.Err(), "it ends within 10 s")
	require.Error(t, err)
	return err
}

func TestAnAddressWithoutASQLServerIsAnErrorWithin10s(t *testing.T) {
	listen := func(t *testing.T, serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
				serve(conn)
			}
		}()
		t.Cleanup(func() { ln.Close(); <-done })
		return "sqlserver://sa:none@" + ln.Addr().String() + "?database=master&encrypt=disable"
	}
	t.Run("nothing", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		require.ErrorContains(t, attempt(t, "sqlserver://sa:none@"+ln.Addr().String()+"?database=master&encrypt=disable"), "nothing answers at 127.0.0.1")
	})
	t.Run("a server that closes, as PostgreSQL does", func(t *testing.T) {
		require.ErrorContains(t, attempt(t, listen(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 8))
			conn.Close()
		})), "another product")
	})
	t.Run("a server that answers in another protocol", func(t *testing.T) {
		require.ErrorContains(t, attempt(t, listen(t, func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		})), "another product")
	})
	t.Run("a server that is silent", func(t *testing.T) {
		testdb.Long(t) // the limit is 8 s
		silent := make(chan net.Conn, 1)
		t.Cleanup(func() { (<-silent).Close() })
		require.ErrorContains(t, attempt(t, listen(t, func(conn net.Conn) { silent <- conn })), "has not answered within 8s")
	})
	t.Run("an address of PostgreSQL", func(t *testing.T) {
		require.ErrorContains(t, attempt(t, "postgres://127.0.0.1/x"), "want sqlserver://")
	})
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(text)
}
