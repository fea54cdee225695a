package main

import (
	"context"
)

func behave(ctx context.Context, h *hour) error { return nil }
