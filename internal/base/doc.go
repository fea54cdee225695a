// Package base has what every other package of the engine may use: the local time, calls of user functions, events that
// no caller waits for, and states that are reported to the user.
//
// It depends on no database and no message. It starts these goroutines: one during each Call; those of a Group, which
// its owner joins; one of Events while there are events, which Events.Close joins.
package base
