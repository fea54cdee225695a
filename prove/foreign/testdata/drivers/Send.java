// Sends CHANQ_COUNT messages by INSERT and as many by the procedure, with parameters, as an application with Microsoft's JDBC
// driver does: the first half one by one, the second half in one transaction.
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

public class Send {
    interface Sender {
        void send(Connection c, int n) throws SQLException;
    }

    static String body(int n, String by) {
        return "{\"n\": " + n + ", \"name\": \"Łódź by " + by + "\"}";
    }

    static void insert(Connection c, int n) throws SQLException {
        String text = "INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), ?))";
        try (PreparedStatement s = c.prepareStatement(text)) {
            s.setNString(1, body(n, "insert"));
            if (s.executeUpdate() != 1) {
                throw new IllegalStateException("the INSERT changed another number of rows than 1");
            }
        }
    }

    static void call(Connection c, int n) throws SQLException {
        try (CallableStatement s = c.prepareCall("{call dbo.chanq_orders__send(?)}")) {
            s.setNString(1, body(n, "procedure"));
            s.execute();
        }
    }

    public static void main(String[] args) throws SQLException {
        var env = System.getenv();
        int count = Integer.parseInt(env.get("CHANQ_COUNT"));
        String url = "jdbc:sqlserver://" + env.get("CHANQ_HOST") + ":" + env.get("CHANQ_PORT") + ";encrypt=false;databaseName="
            + env.get("CHANQ_DATABASE");
        try (Connection c = DriverManager.getConnection(url, env.get("CHANQ_USER"), env.get("CHANQ_PASSWORD"))) {
            for (Sender sender : new Sender[] {Send::insert, Send::call}) {
                for (int n = 0; n < count; n++) {
                    c.setAutoCommit(n < count / 2);
                    sender.send(c, n);
                }
                c.setAutoCommit(true); // commits
            }
        }
    }
}
