package penstock;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.CopyOption;
import java.nio.file.LinkOption;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without the programs that it starts.
 *
 * Without its native library, Hadoop runs `chmod` for every file it creates. It also copies a file where a rename
 * fails, and a crash during the copy would leave half a file in place of a whole one.
 */
public final class LocalFiles extends LocalFileSystem {

    public LocalFiles() {
        super(new Raw());
    }

    public static final class Raw extends RawLocalFileSystem {

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            PosixFileAttributeView view = (PosixFileAttributeView) Files.getFileAttributeView(
                this.pathToFile(path).toPath(), PosixFileAttributeView.class, new LinkOption[0]);
            if (view == null || permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            String symbols = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            view.setPermissions(PosixFilePermissions.fromString(symbols));
        }

        @Override
        public boolean rename(Path from, Path to) throws IOException {
            File source = this.pathToFile(from);
            File target = this.pathToFile(to);
            File folder = target.getParentFile();
            if (!source.isFile() || target.isDirectory() || folder == null || !folder.isDirectory()) {
                return super.rename(from, to);
            }
            Files.move(source.toPath(), target.toPath(), new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
            return true;
        }
    }
}
