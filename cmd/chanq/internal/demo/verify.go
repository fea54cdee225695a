package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sourcegraph/conc/pool"
)

// Result is the result of a demo.
type Result struct {
	Verified    int `json:"verified"`    // files whose two digests were compared
	Differences int `json:"differences"` // of those, files whose digests differ
	Lost        int `json:"lost"`        // files whose result did not arrive
	Duplicated  int `json:"duplicated"`  // files whose result was recorded more than once
	Changed     int `json:"changed"`     // files that changed after they were listed: not compared
	Skipped     int `json:"skipped"`     // names in the folder that are no readable regular files
}

// OK reports whether the demo recorded every file exactly once with the right digest.
func (r Result) OK() bool { return r.Differences == 0 && r.Lost == 0 && r.Duplicated == 0 }

func (r Result) String() string {
	return fmt.Sprintf("verified %d files, %d differences, %d lost, %d duplicated", r.Verified, r.Differences, r.Lost, r.Duplicated)
}

// verify compares the results of the queues with the files themselves.
func (d *demo) verify(ctx context.Context) error {
	files, _, err := d.ledger.counts(ctx)
	if err != nil {
		return err
	}
	d.opt.Progress.Start("comparing with the files", 0, files)
	v := &verifier{demo: d}
	crew := pool.New().WithMaxGoroutines(d.opt.Workers)
	for r, e := range d.ledger.all(ctx) {
		if err = e; err != nil {
			break
		}
		if r.skipped != "" {
			v.find(&v.skipped, r, r.skipped)
			continue
		}
		crew.Go(func() {
			v.compare(r)
			d.opt.Progress.Add(1)
		})
	}
	crew.Wait()
	d.opt.Progress.End()
	if err != nil {
		return err
	}
	v.report()
	d.result = Result{
		Verified: v.verified, Differences: v.different.count, Lost: v.lost.count,
		Duplicated: v.duplicated.count, Changed: v.changed.count, Skipped: v.skipped.count,
	}
	return nil
}

// findings are of one kind. The first few are kept by name.
type findings struct {
	count int
	named []string
}

const mostNamed = 10

type verifier struct {
	*demo
	mu                                            sync.Mutex
	verified                                      int
	different, lost, duplicated, changed, skipped findings
}

func (v *verifier) find(f *findings, r row, what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f.count++
	if f.count <= mostNamed || v.opt.Verbose {
		f.named = append(f.named, fmt.Sprintf("%q: %s", r.Path, what))
	}
}

func (v *verifier) compare(r row) {
	switch {
	case r.counted == 0:
		v.find(&v.lost, r, "message "+r.message.String()+" of the queue files has no result")
		return
	case r.counted > 1:
		v.find(&v.duplicated, r, fmt.Sprintf("its result was recorded %d times", r.counted))
	}
	direct, err := digest(v.root, r.file)
	var changed *errChanged
	switch {
	case errors.As(err, &changed):
		v.find(&v.changed, r, reason(err))
		return
	case r.problem != "" && err == nil:
		// The file has not changed since it was listed, so its worker should have read it.
		v.find(&v.different, r, "its worker could not hash it: "+r.problem)
	case err != nil:
		v.find(&v.changed, r, "it cannot be read: "+reason(err))
		return
	case !bytes.Equal(direct, r.digest):
		v.find(&v.different, r, fmt.Sprintf("sha256 %x came through the queues, %x is the file's", r.digest, direct))
	}
	v.mu.Lock()
	v.verified++
	v.mu.Unlock()
}

func (v *verifier) report() {
	for _, kind := range []struct {
		*findings
		what string
	}{
		{&v.skipped, "skipped"},
		{&v.changed, "changed since it was listed, not compared"},
		{&v.lost, "lost"},
		{&v.duplicated, "duplicated"},
		{&v.different, "different"},
	} {
		slices.Sort(kind.named)
		for _, name := range kind.named {
			v.say("%s: %s", kind.what, name)
		}
		if more := kind.count - len(kind.named); more > 0 {
			v.say("%s: and %d more (--verbose names them)", kind.what, more)
		}
	}
}
