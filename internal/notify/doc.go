// Package notify wakes consumers of other processes: a Debouncer says what was committed, and a Subscription is how an idle consumer
// listens. The Notifiers of the engines share what is said of slots (slots.go).
//
// There is no goroutine. A Debouncer has a timer while messages wait for a notification; Flush makes it unnecessary. Debouncer.mu is
// held for moments, and not while the Notifier is called. A Subscription is used by one goroutine.
//
// Functions of a Notifier are the user's: they are called by base.Call. This package knows no database.
package notify
