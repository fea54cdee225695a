// Package peer measures one phase of one queue, in a dedicated process. The programs of bench/peers
// share it. They cannot be linked into one program.
package peer

import "context"

// Message is the message that every queue stores: a JSON document of a fixed length.
type Message struct {
	N    int64  `json:"n"` // from 0, each number once
	Body string `json:"body"`
}

// Kind is River's name for messages of this type.
func (Message) Kind() string { return "message" }

// Queue is one system on a new, empty store. Setup and each phase
// are called in separate processes.
type Queue interface {
	// Setup creates the objects that the queue needs, and no messages.
	Setup(ctx context.Context) error
	// Sender opens the sending side; it is not part of any measured time.
	Sender(ctx context.Context) (Sender, error)
	// Receiver starts to receive n messages (0: without end), with a handler that only calls
	// deliver and settles. The measured time begins with this call. deliver may be called
	// concurrently.
	Receiver(ctx context.Context, n int, deliver func(Message)) (Receiver, error)
	// Left returns what the store contains of the messages now.
	Left(ctx context.Context) (Left, error)
	// Statements returns the number of statements that the driver has run, or 0 if the server
	// counts them or there are none.
	Statements() int64
	Close() error
}

// Sender enqueues.
type Sender interface {
	// SendAll returns when all messages are committed. It batches them as users of the system would
	// who have all messages at once.
	SendAll(ctx context.Context, ms []Message) error
	// Send returns when the message is committed; many goroutines call it concurrently.
	Send(ctx context.Context, m Message) error
	Close(ctx context.Context) error
}

// Streamer is a Sender that receives messages one by one, and batches them itself.
type Streamer interface {
	// Hand returns when the message is handed over, before it is committed.
	Hand(ctx context.Context, m Message) error
}

// Receiver claims, delivers and settles.
type Receiver interface {
	// Wait returns when the completions of all messages are committed, or without end, when
	// receiving failed or ctx ends.
	Wait(ctx context.Context) error
	Close(ctx context.Context) error
}

// Left is what remains in the store after all messages have been settled.
type Left struct {
	Rows  int64
	Bytes int64 // of tables with their indexes, or of files
}
