// Package peer measures one phase of one queue, in a process that does nothing
// else. The programs of bench/peers share it, which cannot be linked into one.
package peer

import "context"

// Message is what every queue stores: a JSON document of the same length.
type Message struct {
	N    int    `json:"n"` // from 0, each once
	Body string `json:"body"`
}

// Kind is River's name for messages of this type.
func (Message) Kind() string { return "message" }

// Queue is one system on a new, empty store. Setup and each phase
// are called in separate processes.
type Queue interface {
	// Setup makes what the queue needs, and no messages.
	Setup(ctx context.Context) error
	// Sender opens the sending side; it is not part of any measured time.
	Sender(ctx context.Context) (Sender, error)
	// Receiver starts to receive n messages, 0: without an end, with a handler that
	// calls deliver, does nothing else, and settles. The measured time begins with this call.
	// deliver may be called by several goroutines at once.
	Receiver(ctx context.Context, n int, deliver func(Message)) (Receiver, error)
	// Left is what the store holds of the messages now.
	Left(ctx context.Context) (Left, error)
	// Statements is how many the driver has run so far; 0 if they are
	// counted by the server, or there are none.
	Statements() int64
	Close() error
}

// Sender enqueues.
type Sender interface {
	// SendAll returns when all are committed. It groups them as users of the system
	// would who have all messages at once.
	SendAll(ctx context.Context, ms []Message) error
	// Send returns when the message is committed; many goroutines call it at once.
	Send(ctx context.Context, m Message) error
	Close(ctx context.Context) error
}

// Streamer is a Sender that is handed messages one by one, and groups them itself.
type Streamer interface {
	// Hand returns when the message is handed over, before it is committed.
	Hand(ctx context.Context, m Message) error
}

// Receiver claims, delivers and settles.
type Receiver interface {
	// Wait returns when the completions of all messages are committed; without an
	// end, when receiving failed or ctx ends.
	Wait(ctx context.Context) error
	Close(ctx context.Context) error
}

// Left is what remains in the store after all messages were settled.
type Left struct {
	Rows  int64
	Bytes int64 // of tables with their indexes, or of files
}
