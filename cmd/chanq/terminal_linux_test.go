package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// pseudoTerminal returns both ends of a terminal: data written to the second can be read from the
// first.
func pseudoTerminal(t *testing.T) (screen, end *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("NOT TESTED: no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	var number, unlocked uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlocked} {
		_, _, code := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, code)
	}
	end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { end.Close() })
	return screen, end
}

// seen returns the output of a run of the command on a terminal.
func seen(t *testing.T, args ...string) string {
	t.Helper()
	screen, end := pseudoTerminal(t)
	got := make(chan []byte)
	go func() { // ends when the terminal is closed
		var all bytes.Buffer
		if _, err := io.Copy(&all, screen); err != nil && !errors.Is(err, syscall.EIO) {
			fmt.Fprintf(&all, "read: %v", err)
		}
		got <- all.Bytes()
	}()
	var said bytes.Buffer
	status := Run(t.Context(), args, strings.NewReader(""), end, &said)
	require.NoError(t, end.Close())
	shown := string(<-got)
	require.Equal(t, exitOK, status, "%v: %s", args, said.String())
	return strings.ReplaceAll(shown, "\r\n", "\n") // a terminal adds the \r
}

// hostile is text that contains terminal commands.
const hostile = "red \x1b[31malert\nforged line\r\u009b2J\x7f\u202e\x9b"

func TestATerminalGetsNoCommandsFromMessages(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "--header", "trace="+strings.ToValidUTF8(hostile, ""), "mail", hostile, hostile, hostile, hostile)
	succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
	succeed(t, "", "receive", "--db", db, "--nack", "--cause", strings.ToValidUTF8(hostile, ""), "mail")

	raw := succeed(t, "", "receive", "--db", db, "mail").out
	require.Equal(t, hostile+"\n", raw, "a pipe gets the bytes")
	const shown = `red \x1b[31malert\nforged line\r\u009b2J\x7f\u202e\x9b`
	require.Equal(t, shown+"\n", seen(t, "receive", "--db", db, "mail"))
	for _, args := range [][]string{
		{"peek"}, {"peek", "-o", "json"}, {"peek", "--state", "dead"}, {"peek", "--state", "dead", "-o", "json"},
		{"receive", "-o", "json"},
	} {
		text := seen(t, append(args, "--db", db, "mail")...)
		require.Contains(t, text, `[31malert`, args)
		for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			require.Equal(t, visible(line), line, args)
			require.False(t, strings.HasPrefix(line, "forged"), args)
			if slices.Contains(args, "json") {
				require.True(t, json.Valid([]byte(line)), "%s", line)
			}
		}
	}
}

func TestATerminalGetsNoCommandsFromNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "red \x1b[31m\u009b")
	require.NoError(t, os.Rename(folderOf(t, 1), dir))
	text := seen(t, "demo", "--dir", dir, "--db", filepath.Join(t.TempDir(), "demo.db"))
	require.Contains(t, text, `red \x1b[31m\u009b: starting`)
	require.NotContains(t, text, "\x1b")
}

// What was longer before is erased where the new text ends, so that nothing flickers.
func TestTopIsDrawnOverWhatATerminalShows(t *testing.T) {
	db := newQueue(t, "mail")
	text := seen(t, "top", "--db", db, "-n", "1")
	require.True(t, strings.HasPrefix(text, "\x1b[H"), "%q", text)
	require.True(t, strings.HasSuffix(text, "\x1b[K\n\x1b[J"), "%q", text)
	require.NotContains(t, text, "\x1b[2J")
	require.Contains(t, text, "mail")
}

func TestFindingsHaveAColourOnATerminal(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "a")
	const found = "mail: no consumer runs; 1 message waits, the oldest for less than 1 s"
	short := regexp.MustCompile(`for \d+ s|for less than 1 s`)
	top := func() string {
		return short.ReplaceAllString(seen(t, "top", "--db", db, "-n", "1"), "for less than 1 s")
	}
	require.Contains(t, top(), "\n\x1b[31mX "+found+"\x1b[m\x1b[K\n")
	require.NotContains(t, succeed(t, "", "top", "--db", db, "-n", "1").out, "\x1b")
	t.Setenv("NO_COLOR", "1")
	require.Contains(t, top(), "\nX "+found+"\x1b[K\n")
}

// An SSH session has a width: no line is wrapped, and Ctrl-C ends the command.
func TestTopFitsAnSSHSessionAndEndsWithAnInterrupt(t *testing.T) {
	db := newQueue(t, "mail")
	screen, end := pseudoTerminal(t)
	size := [4]uint16{10, 50, 0, 0}
	_, _, code := syscall.Syscall(syscall.SYS_IOCTL, end.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	require.Zero(t, code)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, []string{"top", "--db", db, "--every", "10ms"}, strings.NewReader(""), end, io.Discard)
	}()
	var shown strings.Builder
	part := make([]byte, 4096)
	for strings.Count(shown.String(), "mail") < 3 {
		n, err := screen.Read(part)
		require.NoError(t, err)
		shown.Write(part[:n])
	}
	interrupt()
	require.Equal(t, exitOK, <-ended)
	require.NotContains(t, shown.String(), "LAST HOUR")
	for line := range strings.Lines(strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "", "\r", "").Replace(shown.String())) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, " \n"))), 50, line)
	}
}
