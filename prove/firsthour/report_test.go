package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
)

// An emulator for which nothing is answered lacks much of a server: that is no difference.
func TestWhatTheEmulatorLacksIsNotAsked(t *testing.T) {
	report, err := ask(t, instance.Start(t, nil), "-parts", "facts,plans,locks,behaviours")
	require.NoError(t, err, report)
	require.NotContains(t, report, "DIFFERS")
	require.Contains(t, report, "not supported by mssqltest")
	require.Contains(t, report, "As expected in the parts that ran: facts, locks, behaviours. Nothing could be asked in: plans. Not run: suite, programs, load.**")
	require.Contains(t, report, "| 13 | Ordered queues | plans | not asked: mssql: not supported by mssqltest")
	require.Contains(t, report, "| 3 | Plans | plans | not asked: mssql: not supported by mssqltest")
	require.Contains(t, report, "| versions: claim 3 of 4 | 3 rows;", "the locks are compared although their requests are not counted")
	require.Contains(t, report, "| 2 | The rules hold | behaviours | 78 as expected |")
}

func TestARightThatIsMissingIsNotAsked(t *testing.T) {
	i := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		if strings.Contains(r.Text, "HAS_PERMS_BY_NAME") && r.Args[0] == "VIEW SERVER STATE" {
			return instance.Answer{Rows: [][]any{{int64(0)}}}, true
		}
		return instance.Answer{Number: 300, Message: "VIEW SERVER STATE permission was denied"}, strings.Contains(r.Text, "FROM sys.dm_")
	})
	report, err := ask(t, i, "-parts", "facts,locks")
	require.NoError(t, err, report)
	require.Contains(t, report, "| parts: locks; facts and load in part | | the login may not VIEW SERVER STATE | not asked |")
	require.Contains(t, report, "| 4 | Locks | locks | not asked: ")
	require.Contains(t, report, "| cores; memory, MB | | mssql: VIEW SERVER STATE permission was denied (300) | not asked |", "one fault is one row")
}

func TestTheSummaryCountsDifferencesAndWhatWasNotAsked(t *testing.T) {
	r := newReport(t.Context(), &bytes.Buffer{})
	for _, p := range parts {
		r.begin(p.name)
	}
	require.Equal(t, "0 differences, 0 not asked. Everything is as chanq expects it.", r.summary())
	r.skip("a", errors.New("no right"))
	r.skip("b", errors.New("no right"))
	require.NotContains(t, r.summary(), "Everything")
	r.wrong("c", "1", "2")
	require.Equal(t, "1 difference, 1 not asked.", r.summary())
	r.failed("d", "1", errors.New("an error of a statement"))
	require.Equal(t, "2 differences, 1 not asked.", r.summary())
}

func TestAnInterruptionIsNoDifference(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newReport(ctx, &bytes.Buffer{})
	r.wrong("before", "1", "2")
	cancel()
	r.wrong("a test", "pass", "fail")
	r.attach("Output", "", "FAIL")
	require.Equal(t, 1, r.count(wrong))
	require.Empty(t, r.texts)
}

// A report that cannot be written is an error before anything is created, and is printed if that happens at the end.
func TestAReportThatCannotBeWrittenIsPrinted(t *testing.T) {
	var progress bytes.Buffer
	nowhere := filepath.Join(t.TempDir(), "none")
	args := func(i *instance.Instance) []string {
		return []string{"-dsn", i.DSN(), "-parts", "facts", "-out", filepath.Join(nowhere, "report.md")}
	}
	created := false
	i := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		created = created || strings.HasPrefix(r.Text, "CREATE ")
		return instance.Answer{}, false
	})
	require.ErrorIs(t, command(t.Context(), args(i), &progress, &progress), os.ErrNotExist)
	require.False(t, created)

	require.NoError(t, os.Mkdir(nowhere, 0o755))
	i = emulated(t, func(r instance.Request) (instance.Answer, bool) {
		if strings.HasPrefix(r.Text, "CREATE DATABASE") {
			_ = os.RemoveAll(nowhere)
		}
		return instance.Answer{}, false
	})
	require.ErrorContains(t, command(t.Context(), args(i), &progress, &progress), "the report is above")
	require.Contains(t, progress.String(), "# chanq on Microsoft SQL Server")
	require.Equal(t, []string{"master"}, i.Databases())
}

func TestAReportHasNoPasswordAndNoAddressAndNoFolder(t *testing.T) {
	address, err := url.Parse("sqlserver://sa:se%40cret@db.example.com:1433?database=master")
	require.NoError(t, err)
	h := &hour{server: &server{address: address}, root: "/home/me/chanq"}
	for text, clean := range map[string]string{
		"login with se@cret at " + address.String():         "login with … at sqlserver://sa:…@…?database=master",
		"/home/me/chanq/sqlbatch/a_test.go:12 of " + h.root: "sqlbatch/a_test.go:12 of .",
		"dial tcp 10.1.2.3:1433 for db.example.com":         "dial tcp … for …",
		"build 16.0.4135.4":                                 "build 16.0.4135.4",
	} {
		require.Equal(t, clean, h.clean(text))
	}
}

func TestTablesAreAligned(t *testing.T) {
	require.Equal(t, "| a   | b |\n|-----|---|\n| äbc | 1 |\n", table([][]string{{"a", "b"}, {"äbc", "1"}}))
	require.Equal(t, "text     ms  spools\nclaim     7  none\nenqueue  12\n", columns([][]string{{"text", "ms", "spools"}, {"claim", "7", "none"}, {"enqueue", "12", ""}}))
}

func TestTheHelpSaysWhatIsNeededAndWhatComesBack(t *testing.T) {
	var usage bytes.Buffer
	_, err := parse([]string{"-h"}, &usage)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, usage.String(), "3 interrupted. go run always returns 1, and prints the status.\n")
	for _, r := range rights {
		require.Contains(t, usage.String(), r.name)
	}
	_, err = parse([]string{"-dsn", "sqlserver://127.0.0.1", "-docker", "2022"}, &usage)
	require.EqualError(t, err, "use either -dsn or -docker, not both")
	o, err := parse([]string{"-dsn", "sqlserver://sa:secret@127.0.0.1", "-quick"}, &usage)
	require.NoError(t, err)
	require.Equal(t, "firsthour -dsn=… -quick=true", o.line)
	require.Equal(t, quickLoad, o.load, "in about a minute")
}
