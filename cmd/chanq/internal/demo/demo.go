// Package demo sends a folder through two queues and proves that nothing was lost, duplicated or changed.
//
//	folder → list ──SendTx──▶ queue files ──Pipe(sha256)──▶ queue sums ──AckTx──▶ table
//
// A file is listed in the transaction that sends its message, and its digest is recorded in the transaction
// that acks the result. Therefore the demo may be killed at any moment. Started again on the same database it
// continues, and every file is still counted exactly once. At the end each digest is compared with one computed
// from the file without any queue.
package demo

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/sqlbatch"
)

// The queues of the demo.
const (
	filesQueue = "files"
	sumsQueue  = "sums"
)

// ErrInterrupted: the context ended before the demo finished. Run again on the same database to continue.
var ErrInterrupted = errors.New("interrupted")

// Options of a demo. Workers, LeaseFor, Out and Progress must be set.
type Options struct {
	// Dialect of the database.
	Dialect sqlbatch.Dialect
	// Schema that holds the tables. Default: the dialect's.
	Schema string
	// Durability controls how a database that may lose confirmed commits is treated.
	Durability chanq.Durability
	// Dir is the folder. Default: the folder of the demo in the database, otherwise the result of DefaultDir.
	Dir        string
	DefaultDir func() (string, error)
	// Own are files that are not listed although they may be in Dir: the database itself, which changes
	// constantly.
	Own []string
	// Fresh deletes the demo in the database and starts over.
	Fresh bool
	// Workers is how many files are hashed at once.
	Workers int
	// Prefetch is how many messages of a queue one process holds at most. After a kill the next demo waits for
	// these. Default: 500.
	Prefetch int
	// LeaseFor is how long the messages of a demo that was killed stay invisible to the next demo.
	LeaseFor time.Duration
	// Verbose names every skipped file and every finding instead of the first few.
	Verbose bool
	// Out receives a description of the demo's steps and findings.
	Out io.Writer
	// Progress receives the progress of the demo.
	Progress Progress
}

// Progress shows the progress of a demo. Add may be called by several goroutines.
type Progress interface {
	// Start begins a part of total steps, of which done are already done.
	Start(what string, done, total int)
	Add(n int)
	End()
}

// Run runs the demo on a database, or continues the demo in it. The end of ctx drains it: nothing more is
// claimed, messages in processing are finished, and Run returns ErrInterrupted. It returns an error if the demo
// could not be run. Differences are in the Result.
func Run(ctx context.Context, db *sql.DB, opt Options) (Result, error) {
	opt.Prefetch = cmp.Or(opt.Prefetch, 500)
	d := &demo{opt: opt, db: db, ledger: newLedger(db, opt.Dialect, opt.Schema)}
	err := d.run(ctx)
	switch {
	case err == nil || ctx.Err() == nil || errors.Is(err, ErrInterrupted):
	case errors.Is(err, context.Canceled):
		err = ErrInterrupted
	default:
		err = errors.Join(ErrInterrupted, err)
	}
	return d.result, err
}

type demo struct {
	opt    Options
	db     *sql.DB
	ledger *ledger
	state  state
	root   *os.Root
	result Result

	resumed bool // the database contained this demo

	files *chanq.Queue[file]
	sums  *chanq.Queue[sum]
}

// file is the body of a message in the queue files.
type file struct {
	No    int    `json:"no"`
	Path  string `json:"path"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"`
}

// sum is the body of a message in the queue sums: the result for the file whose message it names.
type sum struct {
	No      int      `json:"no"`
	Message chanq.ID `json:"message"`
	Digest  []byte   `json:"digest"`
	Problem string   `json:"problem,omitempty"`
}

func (d *demo) run(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.state.dir)
	if err != nil {
		return fmt.Errorf("open the folder: %w", err)
	}
	defer root.Close()
	d.root = root
	if err := d.openQueues(ctx); err != nil {
		return err
	}
	var todo []entry
	if !d.state.listed {
		if todo, err = d.unlisted(ctx); err != nil {
			return err
		}
	}
	if err := d.process(ctx, todo); err != nil {
		return err
	}
	return d.verify(ctx)
}

// begin finds or creates the demo's record in the database. It writes nothing before it knows that the folder
// exists and the queues are free.
func (d *demo) begin(ctx context.Context) error {
	found, err := d.ledger.state(ctx)
	if err != nil {
		return err
	}
	if found == nil {
		if err := d.ledger.refuseForeignQueues(ctx); err != nil {
			return err
		}
	}
	dir := d.opt.Dir
	switch {
	case dir == "" && found != nil:
		dir = found.dir
	case dir == "":
		if dir, err = d.opt.DefaultDir(); err != nil {
			return err
		}
	}
	if dir, err = Folder(dir); err != nil {
		return fmt.Errorf("the folder: %w", err)
	}
	switch {
	case found == nil:
		if err := d.ledger.create(ctx, dir); err != nil {
			return err
		}
		d.say("%s: starting", dir)
	case d.opt.Fresh:
		if err := d.startOver(ctx, dir); err != nil {
			return err
		}
		d.say("%s: starting over", dir)
	default:
		d.resumed = true
	}
	// It is read again, because another process may also have begun.
	if d.state, err = d.ledger.stateIn(ctx, d.db); err != nil {
		return fmt.Errorf("read the demo's record: %w", err)
	}
	if d.state.dir != dir {
		return fmt.Errorf("the database has a demo of %s: leave out --dir to continue it, or give --fresh to start again with %s", d.state.dir, dir)
	}
	return nil
}

// Folder returns the absolute path of a folder without symbolic links, so that each folder has one name.
func Folder(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", abs)
	}
	return abs, nil
}

// startOver empties the record, in one transaction, and then the queues. If it is killed in between, the
// messages that remain are of files that the record does not contain: their results are acked and not counted.
func (d *demo) startOver(ctx context.Context, dir string) error {
	if err := d.ledger.reset(ctx, dir); err != nil {
		return err
	}
	for _, name := range []string{filesQueue, sumsQueue} {
		q, err := chanqadmin.Open(ctx, d.db, name, d.config())
		if errors.Is(err, chanq.ErrNoSchema) {
			continue // killed before it was created
		} else if err != nil {
			return err
		}
		for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone} {
			if _, err := q.Purge(ctx, chanqadmin.Select{State: s, All: true}, chanqadmin.Change{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// config allows many attempts and crashes: each kill of the demo is both, for all messages that it held.
func (d *demo) config() chanq.Config {
	return chanq.Config{
		Dialect: chanq.Dialect(d.opt.Dialect.Name()), Schema: d.opt.Schema, Durability: d.opt.Durability, MaxCrashes: 1000,
		Spec: chanq.Spec{MaxAttempts: chanq.UnlimitedAttempts},
	}
}

func (d *demo) openQueues(ctx context.Context) (err error) {
	for _, name := range []string{filesQueue, sumsQueue} {
		if err := chanq.Migrate(ctx, d.db, name, d.config()); err != nil {
			return err
		}
	}
	if d.files, err = chanq.Open[file](ctx, d.db, filesQueue, d.config()); err != nil {
		return err
	}
	d.sums, err = chanq.Open[sum](ctx, d.db, sumsQueue, d.config())
	return err
}

// empty reports whether no message is left in the queues. The order of the checks matters: a file moves from
// the first queue to the second in one transaction, so it cannot be missed in both.
func (d *demo) empty(ctx context.Context) (bool, error) {
	if empty, err := d.files.Empty(ctx); !empty || err != nil {
		return false, err
	}
	return d.sums.Empty(ctx)
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.opt.Out, format+"\n", args...)
}
