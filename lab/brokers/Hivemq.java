import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Path;

/** HiveMQ CE with its configuration and its data in a folder: Hivemq FOLDER */
class Hivemq {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(folder.resolve("conf")).withDataFolder(folder.resolve("data"))
            .withExtensionsFolder(folder.resolve("extensions")).build();
        broker.start().join();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        Thread.currentThread().join();
    }
}
