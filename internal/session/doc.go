// Package session keeps pinned connections of a *sql.DB, apart from the application's
// use of it: a settle never waits for a connection that a handler holds.
//
// A Pool has the sessions of all queues on one *sql.DB. It is divided by kind of work
// into lanes (Claim, Settle, Extend, Enqueue, Pipe, Note), and no statement waits for a
// session of another lane. A Part is the share of one producer, consumer or pipe in a
// lane.
//
// # Number of sessions
//
// A part has a limit of sessions that it uses at once. A statement that hangs, or was
// left behind, counts until its driver returns. The number of sessions never exceeds the
// sum of these limits, and hanging sessions of one queue never exhaust those of another.
//
// If a statement finds no idle session in its lane, a new one is connected. The statement
// takes that session or one that is released, whichever comes first. If the attempt takes
// long, another one is made in parallel. Patient statements (RunPatient: the polls of idle
// consumers) run one at a time: any number of idle consumers share one session. A timer
// closes sessions that were idle for a while, and idle producers and consumers hold none.
// While leases are held, one session stays for their extension: connecting might take long
// over a slow network (Expect).
//
// # A *sql.DB with a limit
//
// Handlers might use all connections that SetMaxOpenConns allows, and hold them while they
// wait for a settle. The session of the settle must exist already. Each lane therefore has
// two reserved connections, or one if its parts may use no more than one. They are
// connected before there is work (Fill), kept while idle, and shared by all queues. The
// second one is for when the first one hangs. Join fails if the limit is below the sum of
// all reserved connections and one for the application.
//
// A lane takes an additional connection only while more than one is to spare. It returns
// the connection after 100 ms of idleness, or immediately if the application has reached
// the limit. A statement without a session waits for one of its lane, first come first
// served. If all connections are in use and both reserved connections of a lane hang, the
// other statements of that lane wait until these end or time out.
//
// The limit is read whenever it matters, and may be changed at any time: connections are
// reserved from the next statement of their lane on. If the limit becomes too small, the
// next Join fails, and connections are scarce: see scarce.go. A limit that the *sql.DB does not
// show has the same effect.
//
// # Age
//
// A session is used again only if its statement ended with a known outcome. Otherwise the
// session and its connection are closed. A session that is old, or was idle for a minute,
// is renewed before it is used: its connection is closed, and another one, which has to
// answer a ping, is taken.
//
// A statement that fails for good (Permanent, NoSchema) is run once more on a new connection,
// before its error is returned: only the connection might be the cause. See Part.afresh.
//
// A database with one writer (Traits.OneWriter) has one session for all parts, which
// stays: statements queue up for it in order, and its page cache stays warm.
package session
