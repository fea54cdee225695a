// Package chanqjobs puts jobs of several kinds into one queue, with a Go type for each kind:
//
//	var Welcome = chanqjobs.Define[WelcomeMail]("welcome")
//
//	receipts, err := jobs.Send(ctx, Welcome.New(mail), Charge.New(payment)) // one statement
//
// A job is a message whose Type is the name of its kind. So SendTx, AckTx, Pipe and a plain INSERT work with jobs. You receive them in one of
// three ways:
//
//   - Loop over Consumer.C, and switch on the Type of a lease. Kind.Open decodes it.
//   - Get a channel for each kind by Chan. Mux.Split feeds the channels.
//   - Register a function for each kind by Handle, and pass Mux.Handle to Consumer.Handle.
//
// docs/guides/kinds.md also says when to give a kind a separate queue.
package chanqjobs

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chanq/chanq"
)

// Job is the body of a message of any kind. Kind.New makes one to send. A received one is not decoded yet: see Kind.Open. If you send a
// received one on, it keeps its bytes.
type Job struct {
	unsent encoder     // of Kind.New
	data   []byte      // stored
	codec  chanq.Codec // for the bodies of the queue that it was received from
}

// encoder is the body of a job to send, with its kind.
type encoder interface {
	encode(c chanq.Codec) ([]byte, error)
}

// Bytes returns the stored body of a received job. Do not modify it.
func (j Job) Bytes() []byte { return j.data }

var errCodec = errors.New("chanqjobs: a Job is not JSON: open its queue with chanqjobs.Open, or set Config.Codec to chanqjobs.Codec")

// MarshalJSON returns an error, for queues that were opened without the codec of this package.
func (j Job) MarshalJSON() ([]byte, error) { return nil, errCodec }

// UnmarshalJSON returns an error, as MarshalJSON does.
func (j *Job) UnmarshalJSON([]byte) error { return errCodec }

// Open opens a queue of jobs. Config.Codec is for kinds that have no codec: see Kind.With. Create the tables with chanq.Migrate.
func Open(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config) (*chanq.Queue[Job], error) {
	cfg.Codec = Codec(cfg.Codec)
	return chanq.Open[Job](ctx, db, queue, cfg)
}

// Codec returns the Config.Codec that Open sets, for other functions that open a queue, such as chanqshards.Open. bodies is for kinds that
// have no codec. Default: chanq.JSON.
func Codec(bodies chanq.Codec) chanq.Codec {
	if bodies == nil {
		bodies = chanq.JSON
	}
	return jobCodec{bodies}
}

type jobCodec struct{ bodies chanq.Codec }

func (c jobCodec) Encode(body any) ([]byte, error) {
	switch j := body.(Job); {
	case j.unsent != nil:
		return j.unsent.encode(c.bodies)
	case j.codec != nil:
		return j.data, nil
	}
	return nil, errors.New("chanqjobs: the Job has no kind: make it with Kind.New")
}

func (c jobCodec) Decode(data []byte, body any) error {
	*body.(*Job) = Job{data: data, codec: c.bodies}
	return nil
}
