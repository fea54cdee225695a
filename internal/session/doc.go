// Package session keeps pinned connections of a *sql.DB, apart from the application's
// use of it: a settle never waits for a connection that a handler holds.
//
// A Pool has the sessions of all queues on one *sql.DB, and any statement may use any of them.
// A Part is what one producer, consumer or pipe uses for one kind of work (Claim, Settle,
// Extend, Enqueue, Pipe, Note).
//
// # The states of a session
//
//	connecting ──▶ idle ◀──▶ in use      of a Pool: puddle moves and counts them
//	                 │          │
//	                 ▼          ▼
//	               closed: broken, old, or not needed
//
//	borrowed ──▶ back at the *sql.DB     or closed, if it is broken
//
// Its statement owns a session in use. A session is used again only if its statement ended
// with a known outcome. A session that is old is closed when it would be used, and one that
// was idle for a minute must answer first. A statement that fails for good (Permanent,
// NoSchema) is run again on new connections before its error is returned: only the
// connection might be the cause. See Part.afresh.
//
// # Number of sessions
//
// A part has a limit of statements at the same time. A statement that hangs, or was left
// behind, counts until its driver returns. If no session is idle, a new one is connected, so
// a hanging session delays no other statement. Patient statements (RunPatient: the polls of
// idle consumers) of a kind run one at a time: any number of idle consumers share one session,
// and a heartbeat does not wait for polls.
// Sessions that were idle for a minute are closed.
//
// # A *sql.DB with a limit
//
// Handlers might use all connections that SetMaxOpenConns allows, and hold them while they
// wait for a settle. The session of the settle must exist already. Each kind therefore has
// two reserved sessions, or one if its parts may use no more than one. They are connected
// before there is work (Connect), and stay. The second one is for when the first one hangs. Open
// fails if the limit is below the sum of all reserved sessions and one connection for the
// application.
//
// No kind uses more sessions than it has reserved. Further statements, and all of kind Note,
// borrow a connection, as a call of the application does: Note always, the others only while
// more than one is to spare. Otherwise they wait.
//
// The limit is read before each statement, and may be changed at any time.
//
// # Scarce connections
//
// Connections are scarce if SetMaxOpenConns was lowered below what Open accepts, or if the
// driver's pool, the role or the server has a lower limit. That one shows only in attempts to
// connect that fail, or take long. For half a minute all sessions are then returned, and
// statements borrow connections, one at a time: two connections are enough for chanq and the
// application.
//
// # Goroutines
//
// A Pool has one, which closes idle sessions and looks for scarce connections: the last part
// that is closed ends and joins it. Puddle starts one per attempt to connect and per session
// to close, and Pool.close waits for them. An attempt that hangs in the driver is left behind
// (connect). A part owns its statements that were left behind (Items), and Close joins them.
//
// A database with one writer (Traits.OneWriter) has one session for all parts, which
// stays: statements queue up for it in order, and its page cache stays warm.
package session
