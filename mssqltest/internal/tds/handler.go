// Package tds is the wire of the SQL Server emulator: a TDS 7.4 server that
// decodes requests and encodes results. It does not parse SQL; a Handler does.
package tds

import (
	"context"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Handler represents a server: it admits connections.
type Handler interface {
	// Login admits one connection. A *sqltype.Error (18456, 40613 …), or several that
	// are joined (4060 and then 18456), are sent to the client and the connection closed.
	Login(ctx context.Context, login Login) (Session, error)
}

// Login is the login data of the client.
type Login struct {
	User, Password, Database, AppName, HostName string
	ODBC                                        bool // OptionFlags2 requests the ANSI settings
}

// Session runs the requests of one connection, one at a time.
type Session interface {
	// Run runs one request and writes its results. ctx ends when the client sends ATTENTION (cause ErrAttention) or the connection breaks
	// (cause ErrConnectionGone). Run then returns promptly (after rolling back what XACT_ABORT requires), and its later output is
	// discarded. A returned error other than ctx's is a failure of the emulator: the client receives it, and the connection closes. SQL
	// errors go through w.
	Run(ctx context.Context, r *Request, w Results) error
	// Close ends the session: an open transaction is rolled back.
	Close()
}

// RequestKind is the form of a request.
type RequestKind uint8

// The kinds of request.
const (
	Batch       RequestKind = iota + 1 // plain text, in Text
	RPC                                // a procedure, in Proc (ids are translated to names: 10 is sp_executesql) and Params
	Transaction                        // a transaction-manager request, in Tx
)

// Request is one message of the client.
type Request struct {
	Kind   RequestKind
	Text   string
	Proc   string
	Params []Param
	Tx     TxRequest
	Reset  bool // the message had RESETCONNECTION: reset the session's settings first (not its isolation level) and roll back its transaction
	KeepTx bool // RESETCONNECTIONSKIPTRAN: reset, but an open transaction stays
	Bytes  int  // of the complete message, headers included
}

// Param is one parameter of an RPC. Unnamed ones have an empty Name; names include their "@".
type Param struct {
	Name   string
	Output bool
	Type   sqltype.Type
	Value  sqltype.Value
}

// TxOp is the operation of a transaction-manager request.
type TxOp uint16

// The operations, by their number on the wire.
const (
	TxBegin    TxOp = 5
	TxCommit   TxOp = 7
	TxRollback TxOp = 8
	TxSave     TxOp = 9
)

// TxRequest is a transaction-manager request. Isolation is the wire's number:
// 0 unchanged, 1 read uncommitted, 2 read committed, 3 repeatable read,
// 4 serializable, 5 snapshot.
type TxRequest struct {
	Op        TxOp
	Name      string
	Isolation uint8
}

// Command is the kind of a statement in its DONE. It is zero for statements that drivers do not distinguish.
type Command uint16

// The commands, by their number on the wire (CurCmd).
const (
	Select Command = 193
	Insert Command = 195
	Delete Command = 196
	Update Command = 197
	Define Command = 198 // CREATE, ALTER, DROP
)

// End is the end of one statement.
type End struct {
	Command Command
	Rows    uint64
	Counted bool // false for statements without a row count and under NOCOUNT
	InProc  bool // it ran inside a procedure or sp_executesql
}

// Results receives the results of a request, in order. Its methods return an error only when the connection is gone, or when a value
// has the wrong type for its column or does not fit it, which is a bug of the session: Run returns either.
type Results interface {
	Columns([]sqltype.Column) error
	Row([]sqltype.Value) error
	// Done ends one statement. The server writes the last DONE of a response.
	Done(End) error
	Message(*sqltype.Error) error // error or information, by Class
	ReturnStatus(int32) error
	// ReturnValue is the value of the output parameter at that place in the call; the first is 0.
	ReturnValue(place int, p Param) error
	// Database informs the client that the session is in another database.
	Database(now, before string) error
	// TxBegan, TxCommitted and TxRolledBack inform the client of the
	// transaction's state (ENVCHANGE 8, 9, 10). id is never 0.
	TxBegan(id uint64) error
	TxCommitted(id uint64) error
	TxRolledBack(id uint64) error
	// Flush sends the output so far: rows reach a client before their statement has ended, as on a real server.
	Flush() error
}
