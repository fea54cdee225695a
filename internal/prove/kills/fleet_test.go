package kills

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleet is the processes of one test: one at each place, replaced when it is
// killed. Only the test's goroutine uses it.
type fleet struct {
	*testing.T
	part  part // what all have in common
	crew  map[string]*process
	lives []Life
	kills []Kill
	died  chan *process // ended without being told to
}

// process is one life.
type process struct {
	life  Life
	cmd   *exec.Cmd
	stdin io.Closer
	out   bytes.Buffer // complete when ended is closed
	ended chan struct{}

	mu   sync.Mutex
	told bool // to stop, or killed
}

func newFleet(t *testing.T, p part) *fleet {
	return &fleet{T: t, part: p, crew: map[string]*process{}, died: make(chan *process, 100)}
}

// start starts the next life at a place. The process is killed when the test
// ends, whatever it does then.
func (f *fleet) start(place string) {
	life := Life{place, 1}
	if before := f.crew[place]; before != nil {
		life.N = before.life.N + 1
	}
	given := f.part
	given.Life = life
	text, err := json.Marshal(given)
	require.NoError(f, err)
	self, err := os.Executable()
	require.NoError(f, err)
	p := &process{life: life, cmd: exec.Command(self), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", partVariable, text))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(f, err)
	require.NoError(f, p.cmd.Start())
	f.crew[place] = p
	f.lives = append(f.lives, life)
	go func() { // ends with the process, which the cleanup sees to
		_ = p.cmd.Wait() // its state tells
		p.mu.Lock()
		told := p.told
		p.mu.Unlock()
		close(p.ended)
		if !told {
			f.died <- p
		}
	}()
	f.Cleanup(func() {
		p.tell()
		_ = p.cmd.Process.Kill() // it has ended, mostly
		<-p.ended
	})
}

func (p *process) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = true
}

// kill ends the life at a place with a signal that it cannot see.
func (f *fleet) kill(place string) {
	p := f.crew[place]
	f.kills = append(f.kills, Kill{Life: p.life, At: time.Now()})
	p.tell()
	require.NoError(f, p.cmd.Process.Kill(), "%s had ended:\n%s", p.life, &p.out)
	<-p.ended
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(f, status.Signaled() && status.Signal() == syscall.SIGKILL, "%s ended by itself: %s\n%s", p.life, p.cmd.ProcessState, &p.out)
}

// stop has the lives at places end in peace.
func (f *fleet) stop(places []string) {
	for _, place := range places {
		f.crew[place].tell()
		require.NoError(f, f.crew[place].stdin.Close())
	}
	for _, place := range places {
		p := f.crew[place]
		select {
		case <-p.ended:
			require.True(f, p.cmd.ProcessState.Success(), "%s: %s\n%s", p.life, p.cmd.ProcessState, &p.out)
		case <-time.After(2 * patience):
			require.Fail(f, "it does not stop", "%s", p.life)
		}
	}
}

// still fails the test if a process has died by itself.
func (f *fleet) still() {
	select {
	case p := <-f.died:
		require.Fail(f, "a process died by itself", "%s: %s\n%s", p.life, p.cmd.ProcessState, &p.out)
	default:
	}
}

// events are the logs of all lives.
func (f *fleet) events() []Event {
	var all []Event
	for _, life := range f.lives {
		events, err := ReadLog(f.part.Dir, life)
		require.NoError(f, err)
		all = append(all, events...)
	}
	return all
}
