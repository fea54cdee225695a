package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// conjuncts splits a predicate at its ANDs, so that each part can be placed and searched separately.
func (c *compiler) conjuncts(e ast.BooleanExpression) ([]*cond, error) {
	switch e := e.(type) {
	case nil:
		return nil, nil
	case *ast.BooleanParenthesisExpression:
		return c.conjuncts(e.Expression)
	case *ast.BooleanBinaryExpression:
		if strings.EqualFold(e.BinaryExpressionType, "And") {
			a, err := c.conjuncts(e.FirstExpression)
			if err != nil {
				return nil, err
			}
			b, err := c.conjuncts(e.SecondExpression)
			return append(a, b...), err
		}
	}
	one, err := c.cond(e)
	if err != nil {
		return nil, err
	}
	one.text = c.predicateText(e)
	return []*cond{one}, nil
}

// predicateText returns a normal form of the simple predicates that a filtered index may have, and "" for others.
func (c *compiler) predicateText(e ast.BooleanExpression) string {
	column := func(s ast.ScalarExpression) string {
		if r, ok := s.(*ast.ColumnReferenceExpression); ok && r.MultiPartIdentifier != nil {
			parts := r.MultiPartIdentifier.Identifiers
			return strings.ToLower(parts[len(parts)-1].Value)
		}
		return ""
	}
	switch e := e.(type) {
	case *ast.BooleanParenthesisExpression:
		return c.predicateText(e.Expression)
	case *ast.BooleanIsNullExpression:
		if name := column(e.Expression); name != "" {
			return fmt.Sprintf("%s null %v", name, !e.IsNot)
		}
	case *ast.BooleanComparisonExpression:
		name := column(e.FirstExpression)
		if name == "" {
			return ""
		}
		switch v := e.SecondExpression.(type) {
		case *ast.IntegerLiteral:
			return name + comparisons[e.ComparisonType] + v.Value
		case *ast.StringLiteral:
			return name + comparisons[e.ComparisonType] + "'" + v.Value
		}
	}
	return ""
}
