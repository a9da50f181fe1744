// Runs every test method of minio-java's TestMinioClient, which its own main leaves at the first exception of a clean-up; started by run.py.
//
// The class is on the class path and known by its name only. A line `{"method":...,"status":...}` says how each method ended.

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Set;

public class EachMethod {
    /** What is no test; nor are the methods `test...`, which tests call. */
    static final Set<String> FRAME = Set.of("runTests", "runBucketTests", "runObjectTests", "setup", "teardown");

    static void say(String method, String status, Throwable error) {
        String text = String.valueOf(error).replaceAll("[^ -~]", " ").replace("\\", "/").replace("\"", "'");
        System.out.printf("{\"method\":\"%s\",\"status\":\"%s\",\"error\":\"%s\"}%n", method, status, error == null ? "" : text.substring(0, Math.min(400, text.length())));
    }

    public static void main(String[] arguments) throws Exception {
        Class<?> argumentsClass = Class.forName("TestArgs"), tests = Class.forName("TestMinioClient"), minio = Class.forName("io.minio.MinioClient");
        Object builder = minio.getMethod("builder").invoke(null);
        builder = builder.getClass().getMethod("endpoint", String.class).invoke(builder, arguments[0]);
        builder = builder.getClass().getMethod("credentials", String.class, String.class).invoke(builder, arguments[1], arguments[2]);
        Object client = builder.getClass().getMethod("build").invoke(builder);
        Object settings = argumentsClass.getConstructors()[0].getParameterCount() == 4 ? argumentsClass.getConstructors()[0].newInstance((Object[]) arguments)
                : argumentsClass.getConstructor(String.class, String.class, String.class, String.class).newInstance((Object[]) arguments);
        Object suite = tests.getConstructor(argumentsClass, boolean.class, minio).newInstance(settings, false, client);
        List<Method> methods = new ArrayList<>();
        for (Method method : tests.getDeclaredMethods()) {
            boolean isTest = Modifier.isPublic(method.getModifiers()) && !Modifier.isStatic(method.getModifiers()) && method.getParameterCount() == 0
                    && method.getReturnType() == void.class && !FRAME.contains(method.getName()) && !method.getName().startsWith("test");
            if (isTest) methods.add(method);
        }
        methods.sort(Comparator.comparing(Method::getName));
        tests.getMethod("setup").invoke(suite);
        for (Method method : methods) {
            try {
                method.invoke(suite);
                say(method.getName(), "PASS", null);
            } catch (InvocationTargetException error) {
                say(method.getName(), "FAIL", error.getCause());
            }
        }
        System.exit(0);
    }
}
