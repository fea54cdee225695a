package chanqweb

import (
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

// batches shows the latest batches of all queues. Without their table there are none.
func (h *Handler) batches(v *visit) (*answer, error) {
	table, err := h.openBatches(v)
	data := batchesData{Most: batchesShown}
	if err == nil {
		data.List, err = table.List(v.ctx, batchesShown)
	}
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	return &answer{view: &view{Page: "batches", Name: "Batches", Data: data}}, nil
}

// batchesData is the data of the page of batches.
type batchesData struct {
	List []chanqjobs.Batch
	Most int // that are shown
}

const (
	batchesShown = 100
	jobsShown    = 50     // of a batch, in each of two lists
	leftCounted  = 10_000 // up to which number a chanqjobs.BatchStatus counts
)

// openBatches returns the table of batches, with a place among the readers, which ends with the visit.
func (h *Handler) openBatches(v *visit) (t *chanqjobs.BatchTable, err error) {
	if v.give, err = take(v.ctx, h.store.places); err != nil {
		return nil, err
	}
	return chanqjobs.OpenBatchTable(v.ctx, h.store.db, h.store.config)
}

// batchData is the data of the page of a batch.
type batchData struct {
	chanqjobs.BatchStatus
	Jobs, DeadJobs []chanq.ID // the first ones
	Limit          int        // of the count of jobs that are left
}

var errNoBatch = &refusal{404, "There is no such batch. It may have been trimmed, 7 days after its end."}

func (h *Handler) batch(v *visit) (*answer, error) {
	id, err := chanq.ParseID(v.PathValue("id"))
	if err != nil {
		return nil, errNoBatch
	}
	table, err := h.openBatches(v)
	data := batchData{Limit: leftCounted}
	if err == nil {
		data.BatchStatus, err = table.Status(v.ctx, id)
	}
	if err == nil {
		data.Jobs, data.DeadJobs, err = table.Jobs(v.ctx, data.Batch, jobsShown)
	}
	if errors.Is(err, chanqjobs.ErrNoBatch) || errors.Is(err, chanq.ErrNoSchema) {
		return nil, errNoBatch
	}
	if err != nil {
		return nil, err
	}
	return &answer{view: &view{Page: "batch", Name: "Batch " + id.String(), Data: data}}, nil
}
