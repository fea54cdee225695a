// Package notify wakes idle consumers. Those of this process wait in a hub, by Key. Those of other processes listen to a Notifier: a
// Debouncer notifies of what was committed, and a Subscription is how an idle consumer listens. The Notifiers of the databases share
// the text of slots (slots.go).
//
// There is no goroutine. A Debouncer has a timer while messages wait for a notification; Flush makes it unnecessary. Debouncer.mu and
// hub.mu are held for moments, and not while the Notifier is called. A Subscription is used by one goroutine.
//
// Functions of a Notifier are the user's: they are called by base.Call. This package knows no database.
package notify
