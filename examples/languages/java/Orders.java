import java.sql.*;

/** java -cp postgresql.jar Orders.java place o-17 c-1 kite; … Orders.java handle NOTIFICATION o-17 */
class Orders {
    /** Stores an order and its notification, both or neither. */
    static String place(Connection connection, String order, String customer, String product) throws SQLException {
        String id = query(connection, "SELECT outbox_publish('order.placed'::text, ?::text, json_build_object('order_id', ?, 'product', ?))", customer, order, product);
        update(connection, "INSERT INTO orders (id, product) VALUES (?, ?)", order, product);
        return id;
    }

    /** Writes an invoice once, however often the notification is delivered. */
    static String handle(Connection connection, String id, String order) throws SQLException {
        boolean first = query(connection, "SELECT outbox_first('invoices'::text, ?::text)", id).equals("t");
        if (first) {
            update(connection, "INSERT INTO invoices (order_id) VALUES (?)", order);
        }
        return first ? "first" : "seen before";
    }

    public static void main(String[] a) throws SQLException {
        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            connection.setAutoCommit(false); // without a commit, closing the connection rolls back
            String result = a[0].equals("place") ? place(connection, a[1], a[2], a[3]) : handle(connection, a[1], a[2]);
            connection.commit();
            new java.io.PrintStream(System.out, true, java.nio.charset.StandardCharsets.UTF_8).println(result);
        }
    }

    static String query(Connection connection, String sql, String... parameters) throws SQLException {
        try (PreparedStatement statement = prepare(connection, sql, parameters); ResultSet rows = statement.executeQuery()) {
            rows.next();
            return rows.getString(1);
        }
    }

    static void update(Connection connection, String sql, String... parameters) throws SQLException {
        try (PreparedStatement statement = prepare(connection, sql, parameters)) {
            statement.executeUpdate();
        }
    }

    static PreparedStatement prepare(Connection connection, String sql, String... parameters) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        for (int i = 0; i < parameters.length; i++) {
            statement.setString(i + 1, parameters[i]);
        }
        return statement;
    }
}
