package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chanq/chanq"
)

// listRows is how many files are listed and sent in one transaction.
const listRows = 500

// unlisted walks the folder and returns the entries that are not in the ledger yet.
func (d *demo) unlisted(ctx context.Context) ([]entry, error) {
	d.opt.Progress.Start("looking through the folder", 0, 0)
	defer d.opt.Progress.End()
	entries, err := walk(ctx, d.root, d.opt.Own)
	if err != nil {
		return nil, err
	}
	d.opt.Progress.Add(len(entries))
	return d.withoutListed(ctx, entries)
}

func (d *demo) withoutListed(ctx context.Context, entries []entry) ([]entry, error) {
	listed := map[string]bool{}
	for r, err := range d.ledger.all(ctx) {
		if err != nil {
			return nil, err
		}
		listed[r.Path] = true
	}
	var left []entry
	for _, e := range entries {
		if !listed[e.Path] {
			left = append(left, e)
		}
	}
	return left, nil
}

// list sends the files in batches. Each file has a message and a row of the ledger, which are
// stored together or not at all. It stops between batches when ctx ends.
func (d *demo) list(ctx context.Context, todo []entry) error {
	next := d.state.next
	for len(todo) > 0 && ctx.Err() == nil {
		group := todo[:min(len(todo), listRows)]
		for i := range group {
			group[i].No = next + i
		}
		err := d.ledger.transact(ctx, "list files", func(ctx context.Context, tx *sql.Tx) error {
			return d.listGroup(ctx, tx, next, group)
		})
		if errors.Is(err, errOvertaken) {
			// By another process, or by an attempt of this process whose commit was not confirmed.
			if todo, err = d.withoutListed(ctx, todo); err == nil {
				d.state, err = d.ledger.stateIn(ctx, d.db)
			}
			if err != nil {
				return err
			}
			if d.state.listed {
				return nil
			}
			next = d.state.next
			continue
		}
		if err != nil {
			return err
		}
		d.files.Wake()
		next += len(group)
		todo = todo[len(group):]
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The list is complete, in this process or in another one that was faster.
	for {
		err := d.ledger.finishListing(ctx, next)
		if !errors.Is(err, errOvertaken) {
			return err
		}
		if d.state, err = d.ledger.stateIn(ctx, d.db); err != nil || d.state.listed {
			return err
		}
		next = d.state.next
	}
}

func (d *demo) listGroup(ctx context.Context, tx *sql.Tx, next int, group []entry) error {
	if err := d.ledger.number(ctx, tx, next, len(group)); err != nil {
		return err
	}
	var messages []chanq.Message[file]
	for _, e := range group {
		if e.skipped == "" {
			messages = append(messages, chanq.Message[file]{Body: e.file})
		}
	}
	receipts, err := d.files.SendTx(ctx, tx, messages...)
	if err != nil {
		return err
	}
	ids := make([]chanq.ID, len(group)) // zero for skipped entries
	for i, e := range group {
		if e.skipped == "" {
			ids[i], receipts = receipts[0].ID, receipts[1:]
		}
	}
	return d.ledger.list(ctx, tx, group, ids)
}
