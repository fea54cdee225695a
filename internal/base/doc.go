// Package base has what every other package of the engine may use: the local time, calls of functions of the user's, events
// that no caller waits for, and what is reported to the user.
//
// It knows no database and no message. It starts these goroutines: one for the time of each Call; those of Workers, which
// joins them; one of Events while there are events, which Events.Close joins.
package base
