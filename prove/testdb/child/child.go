// Package child starts the running program again as a child process that runs one part of it, for tests and measurements that kill
// processes.
//
// The program first calls Main with the parts that it can run. Start then starts it with a part and a task. A child reads orders,
// one per line, from its standard input and prints events on its standard output. It ends when its input ends, so it outlives its
// parent only briefly.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// variable holds the part and the task of a child.
const variable = "CHANQ_CHILD"

// grace is how long a child can continue to work when its input has ended.
const grace = 2 * time.Minute

type role struct {
	Part string
	Task json.RawMessage
}

// Part is the function of a child. Its context ends with the child's input; orders are the lines of the input, and closed at its
// end.
type Part func(ctx context.Context, task []byte, orders <-chan string) error

// Does returns a part for a function that takes its task as a value.
func Does[Task any](play func(context.Context, Task, <-chan string) error) Part {
	return func(ctx context.Context, text []byte, orders <-chan string) error {
		var task Task
		if err := json.Unmarshal(text, &task); err != nil {
			return err
		}
		return play(ctx, task, orders)
	}
}

// Main runs the part of a child and ends its process: with 1 and a line on standard error if it fails. It returns in a process
// that is not a child.
func Main(parts map[string]Part) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	if err := play(parts, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(parts map[string]Part, text string) error {
	_ = os.Unsetenv(variable) // so that this process can have children with other parts
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	part := parts[r.Part]
	if part == nil {
		return fmt.Errorf("unknown part %q", r.Part)
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	orders := make(chan string, 16)
	go func() { // ends with the process
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			orders <- s.Text()
		}
		close(orders)
		end()
		time.AfterFunc(grace, func() {
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // what it waits for
			os.Exit(3)
		})
	}()
	return part(ctx, r.Task, orders)
}

// Process is a child. One goroutine reads its output and waits for its end.
type Process struct {
	part      string
	cmd       *exec.Cmd
	in        io.WriteCloser
	complaint bytes.Buffer // its standard error; complete when ended is closed
	ended     chan struct{}
	err       error // set before ended is closed
	killed    atomic.Bool
}

// Start starts a child that runs a part. One goroutine passes each complete line of its output to hear, if that is not nil. A kill
// might truncate the last line, which is then not passed. The end of ctx kills the child. The caller of Start must wait for the
// child.
func Start(ctx context.Context, part string, task any, hear func(line string)) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	if text, err = json.Marshal(role{part, text}); err != nil {
		return nil, err
	}
	p := &Process{part: part, cmd: exec.CommandContext(ctx, self, part), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = &p.complaint
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(bufio.NewReaderSize(out, 1<<16), hear)
	return p, nil
}

func (p *Process) read(out *bufio.Reader, hear func(string)) {
	defer close(p.ended)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		if hear != nil {
			hear(line[:len(line)-1])
		}
	}
	if err := p.cmd.Wait(); err != nil {
		p.err = fmt.Errorf("%s process: %w: %s", p.part, err, strings.TrimSpace(p.complaint.String()))
	}
}

// Order writes a line to the child's input. A child that has ended does not receive it;
// Wait then returns its error.
func (p *Process) Order(line string) { _, _ = io.WriteString(p.in, line+"\n") }

// Stop ends the child's input, and with it the child, without a signal.
func (p *Process) Stop() { _ = p.in.Close() } // the child might have ended

// Kill ends the child with a signal that it cannot handle, and waits until all its output is read. It returns an error if the
// child had already ended by itself.
func (p *Process) Kill() error {
	p.killed.Store(true)
	err := p.cmd.Process.Kill()
	<-p.ended
	if err != nil || p.cmd.ProcessState.Exited() {
		return fmt.Errorf("it had ended by itself: %w", errors.Join(err, p.err))
	}
	return nil
}

// Stacks ends the child with a signal that makes a Go program print its stacks, and returns its standard error.
func (p *Process) Stacks() string {
	p.killed.Store(true)
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err.Error()
	}
	<-p.ended
	return p.complaint.String()
}

// Killed reports whether Kill was called.
func (p *Process) Killed() bool { return p.killed.Load() }

// Ended returns a channel that is closed when the child has ended and all its output is read.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the end, and returns nil if the child succeeded, otherwise its status and standard error.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// PID returns the child's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }
