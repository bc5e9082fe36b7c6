package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// missing returns the GRANT statements that a role lacks for a duty. Those of MySQL have the same names.
func (x *examination) missing(ctx context.Context, d postgres.Duty) ([]string, error) {
	if x.my != nil {
		return x.my.Missing(ctx, string(d))
	}
	return x.pg.Missing(ctx, d)
}

// checkPrivileges fails only if Duty says that the role must have the privileges.
func checkPrivileges(ctx context.Context, x *examination) (verdict, error) {
	if x.schema(ctx) != nil && x.openErr != nil && !postgres.IsDenied(x.openErr) && !mysql.IsDenied(x.openErr) {
		return skip("the tables do not have this program's version: see schema", ""), nil
	}
	duties := []postgres.Duty{cmp.Or(x.Duty, postgres.Forwarder)}
	if x.Duty == "" && len(x.Schedules) > 0 {
		duties = append(duties, postgres.Scheduler)
	}
	var missing, names []string
	for _, d := range duties {
		lacks, err := x.missing(ctx, d)
		if err != nil {
			return verdict{}, err
		}
		missing, names = append(missing, lacks...), append(names, string(d))
	}
	list, fix := strings.Join(names, " and "), strings.Join(missing, "\n")
	switch {
	case len(missing) == 0:
		return ok("the role has the privileges of a %s", list), nil
	case x.Duty != "":
		return fail(fix, "the role lacks %s of a %s", count(len(missing), "privilege"), list), nil
	}
	return skip("the role does not have the privileges of a "+list, fix), nil
}

func checkCreators(ctx context.Context, x *examination) (verdict, error) {
	schema, roles, err := x.pg.Creators(ctx)
	if err != nil {
		return verdict{}, err
	}
	if len(roles) == 0 {
		return ok("only owners may create functions in the schema %s", schema), nil
	}
	var fixes []string
	for _, role := range roles {
		fixes = append(fixes, "REVOKE CREATE ON SCHEMA "+schema+" FROM "+role+";")
	}
	return warn(strings.Join(fixes, "\n"), "%s may create functions in the schema %s: one of the name of a function of the outbox may run in its place, with the rights of the caller", some(roles), schema), nil
}
